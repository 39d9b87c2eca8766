-- +goose Up

-- All other statements queue behind one that waits for this lock. So it gives up soon, and fairpactctl migrate tries again.
SET LOCAL lock_timeout = '2s';

-- seat_key is the public key that the initiator declared for a party. attested_by is the
-- certificate's member of that name, for a commitment that a seat key signed. Null: no
-- seat key; a release that does not know the columns leaves them null.
ALTER TABLE parties ADD COLUMN seat_key text;
ALTER TABLE commitments ADD COLUMN attested_by text;

-- +goose Down
ALTER TABLE commitments DROP COLUMN attested_by;
ALTER TABLE parties DROP COLUMN seat_key;
