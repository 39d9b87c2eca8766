-- +goose Up

-- Other statements queue behind a statement that waits for a table lock. So this migration gives up soon, and
-- fairpactctl migrate tries again.
SET LOCAL lock_timeout = '2s';

-- former: fingerprints of former secrets that stored data still needs; null: this database was never rotated, and its
-- inputs carry no mark of their secret. resealed_deal and resealed_party: the last input that the worker has resealed
-- under the secret in force; null: no input is left to reseal.
ALTER TABLE server_secret ADD COLUMN former bytea[];
ALTER TABLE server_secret ADD COLUMN resealed_deal text;
ALTER TABLE server_secret ADD COLUMN resealed_party int;

-- +goose Down
ALTER TABLE server_secret DROP COLUMN resealed_party;
ALTER TABLE server_secret DROP COLUMN resealed_deal;
ALTER TABLE server_secret DROP COLUMN former;
