-- +goose Up

-- What waits for a lock on a table makes all others wait: it gives up soon, and fairpactctl migrate tries again.
SET LOCAL lock_timeout = '2s';

-- former: fingerprints of the secrets that wrote before and that something stored still needs; null: this database was
-- never rotated, and inputs carry no mark. resealed_deal and resealed_party: the last input that the worker has sealed
-- under the secret in force; null: all are.
ALTER TABLE server_secret ADD COLUMN former bytea[];
ALTER TABLE server_secret ADD COLUMN resealed_deal text;
ALTER TABLE server_secret ADD COLUMN resealed_party int;

-- +goose Down
ALTER TABLE server_secret DROP COLUMN resealed_party;
ALTER TABLE server_secret DROP COLUMN resealed_deal;
ALTER TABLE server_secret DROP COLUMN former;
