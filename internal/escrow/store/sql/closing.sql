-- Reads what the closing of the deal $1 states: each party's commitment and the hash of its seal (null: the party did not seal), in
-- party order. The first column is the leaf index of the closing (null: none yet; -1: the log has another one).
SELECT d.closing_leaf, c.commitment, (SELECT s.hash FROM seals s WHERE s.deal_id = c.deal_id AND s.party = c.party)
FROM deals d JOIN commitments c USING (deal_id) WHERE d.deal_id = $1 ORDER BY c.party
