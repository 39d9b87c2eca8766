-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY deals_closing ON deals (seal_time) WHERE seal_time IS NOT NULL AND closing_leaf IS NULL AND commits_closed_at IS NOT NULL;

-- +goose Down
DROP INDEX CONCURRENTLY deals_closing;
