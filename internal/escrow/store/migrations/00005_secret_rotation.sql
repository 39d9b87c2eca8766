-- +goose Up

-- While this migration waits for a table lock, other statements on that table queue behind it. So the migration gives up
-- after 2 s, and `fairpactctl migrate` retries.
SET LOCAL lock_timeout = '2s';

-- former: fingerprints of former secrets that stored data still needs. It is null until the first rotation. Until then,
-- an input carries no mark that names its secret.
-- resealed_deal, resealed_party: the last input that the worker has encrypted again under the secret in force. At the start
-- of a rotation they are '' and -1. Both are null if no input is left to encrypt again.
ALTER TABLE server_secret ADD COLUMN former bytea[];
ALTER TABLE server_secret ADD COLUMN resealed_deal text;
ALTER TABLE server_secret ADD COLUMN resealed_party int;

-- +goose Down
ALTER TABLE server_secret DROP COLUMN resealed_party;
ALTER TABLE server_secret DROP COLUMN resealed_deal;
ALTER TABLE server_secret DROP COLUMN former;
