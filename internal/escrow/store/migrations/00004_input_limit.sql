-- +goose Up
SET LOCAL lock_timeout = '2s';

-- input_limit: maximum size in bytes of an input of the deal in its canonical form. The default is the limit of the releases
-- that did not store one.
ALTER TABLE deals ADD COLUMN input_limit int NOT NULL DEFAULT 524288;

-- +goose Down
ALTER TABLE deals DROP COLUMN input_limit;
