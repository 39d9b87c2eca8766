-- +goose Up

-- A foreign key costs a query for each inserted row, and these foreign keys never refuse a
-- row. A transaction that inserts a row for a deal has locked or inserted that deal. No
-- statement deletes a deal. Before a deal is created, deal-api looks up the initiator's API
-- key. (After a restore of an older backup, the database lacks the newest API keys. For up
-- to a second, a replica may still accept such a key from its cache. Nobody can cancel a
-- deal that is created with such a key.)
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
