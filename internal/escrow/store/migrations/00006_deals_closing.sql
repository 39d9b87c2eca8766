-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY deals_closing ON deals (seal_time) WHERE phase = 'REVEALING' AND seal_time IS NOT NULL AND closing_leaf IS NULL;

-- +goose Down
DROP INDEX CONCURRENTLY deals_closing;
