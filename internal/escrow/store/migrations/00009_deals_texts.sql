-- +goose Up
SET LOCAL lock_timeout = '2s';

-- title, message: what the deal declares in the initiator's words; null: nothing, or the contents of the deal are deleted.
ALTER TABLE deals ADD COLUMN title text;
ALTER TABLE deals ADD COLUMN message text;

-- +goose Down
ALTER TABLE deals DROP COLUMN title, DROP COLUMN message;
