-- +goose Up

-- What waits for a lock on a table makes all others wait: it gives up soon, and fairpactctl migrate tries again.
SET LOCAL lock_timeout = '2s';

-- seat_key is the public key that the initiator declared for a party. attested_by is
-- what the certificate says of a commitment that a seat key signed, whole. Null: none;
-- a release that does not know the columns leaves them so.
ALTER TABLE parties ADD COLUMN seat_key text;
ALTER TABLE commitments ADD COLUMN attested_by text;

-- +goose Down
ALTER TABLE commitments DROP COLUMN attested_by;
ALTER TABLE parties DROP COLUMN seat_key;
