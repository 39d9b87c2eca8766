-- +goose Up
SET LOCAL lock_timeout = '2s';

-- ended_at: when the deal ended; null: it has not ended, or a release that did not store the time ended it.
ALTER TABLE deals ADD COLUMN ended_at bigint;

-- +goose Down
ALTER TABLE deals DROP COLUMN ended_at;
