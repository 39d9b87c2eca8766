-- +goose Up

-- While this migration waits for a table lock, other statements on that table queue behind it. So the migration gives up
-- after 2 s, and `fairpactctl migrate` retries.
SET LOCAL lock_timeout = '2s';

-- seat_key is the public key that the initiator declared for a party; null: none. If a seat
-- key signed the commitment, attested_by is the party's attested_by in the certificate;
-- otherwise it is null. Releases before this migration leave both columns null.
ALTER TABLE parties ADD COLUMN seat_key text;
ALTER TABLE commitments ADD COLUMN attested_by text;

-- +goose Down
ALTER TABLE commitments DROP COLUMN attested_by;
ALTER TABLE parties DROP COLUMN seat_key;
