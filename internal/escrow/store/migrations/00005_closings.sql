-- +goose Up
SET LOCAL lock_timeout = '2s';

-- closing_leaf: leaf index of the closing (escrow/closing.go) of a deal with seals; null: not in the log, and not to be put there
-- after seal_time; -1: the log has another closing of the deal.
ALTER TABLE deals ADD COLUMN closing_leaf bigint;

-- +goose Down
ALTER TABLE deals DROP COLUMN closing_leaf;
