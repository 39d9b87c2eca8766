-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY deals_sealed ON deals (seal_time) WHERE phase = 'REVEALING' AND seal_time IS NOT NULL;

-- +goose Down
DROP INDEX CONCURRENTLY deals_sealed;
