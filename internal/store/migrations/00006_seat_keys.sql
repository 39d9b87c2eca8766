-- +goose Up

-- Other statements queue behind a statement that waits for a table lock. So this migration gives up soon, and
-- fairpactctl migrate tries again.
SET LOCAL lock_timeout = '2s';

-- seat_key is the public key that the initiator declared for a party. attested_by is the
-- certificate's member of that name, for a commitment that a seat key signed. Both are
-- null without a seat key, and in rows that the previous release writes.
ALTER TABLE parties ADD COLUMN seat_key text;
ALTER TABLE commitments ADD COLUMN attested_by text;

-- +goose Down
ALTER TABLE commitments DROP COLUMN attested_by;
ALTER TABLE parties DROP COLUMN seat_key;
