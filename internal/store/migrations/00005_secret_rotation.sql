-- +goose Up

-- Other statements queue behind a statement that waits for a table lock. So this migration gives up soon, and
-- fairpactctl migrate tries again.
SET LOCAL lock_timeout = '2s';

-- former: fingerprints of former secrets that stored data still needs. It is null until the first rotation, and inputs
-- carry no mark of their secret until then.
-- resealed_deal, resealed_party: the last input that the worker has encrypted again under the secret in force. Both are
-- null if no input is left to encrypt again.
ALTER TABLE server_secret ADD COLUMN former bytea[];
ALTER TABLE server_secret ADD COLUMN resealed_deal text;
ALTER TABLE server_secret ADD COLUMN resealed_party int;

-- +goose Down
ALTER TABLE server_secret DROP COLUMN resealed_party;
ALTER TABLE server_secret DROP COLUMN resealed_deal;
ALTER TABLE server_secret DROP COLUMN former;
