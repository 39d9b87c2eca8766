-- +goose Up
SET LOCAL lock_timeout = '2s';

-- audience: public, or null: only the parties see the deal. acted_by: initiator, or null: each party acts for itself.
ALTER TABLE deals ADD COLUMN audience text;
ALTER TABLE deals ADD COLUMN acted_by text;

-- +goose Down
ALTER TABLE deals DROP COLUMN audience, DROP COLUMN acted_by;
