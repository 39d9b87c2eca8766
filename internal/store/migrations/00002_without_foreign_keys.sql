-- +goose Up

-- A foreign key costs a query for each row, and these foreign keys never refuse a row. A
-- statement that inserts a row has locked or inserted the row's deal in the same
-- transaction. No statement deletes a deal. An API key is read before a deal is created
-- with it. (After a restore of an older backup, replicas may accept a newer key from their
-- caches for a second. Nobody can cancel the deals created with that key.)
ALTER TABLE deals DROP CONSTRAINT IF EXISTS deals_owner_hash_fkey;
ALTER TABLE parties DROP CONSTRAINT IF EXISTS parties_deal_id_fkey;
ALTER TABLE commitments DROP CONSTRAINT IF EXISTS commitments_deal_id_party_fkey;
ALTER TABLE reveals DROP CONSTRAINT IF EXISTS reveals_deal_id_party_fkey;
ALTER TABLE certificates DROP CONSTRAINT IF EXISTS certificates_deal_id_fkey;

-- +goose Down
ALTER TABLE deals ADD FOREIGN KEY (owner_hash) REFERENCES api_keys;
ALTER TABLE parties ADD FOREIGN KEY (deal_id) REFERENCES deals;
ALTER TABLE commitments ADD FOREIGN KEY (deal_id, party) REFERENCES parties;
ALTER TABLE reveals ADD FOREIGN KEY (deal_id, party) REFERENCES commitments;
ALTER TABLE certificates ADD FOREIGN KEY (deal_id) REFERENCES deals;
