SELECT c.commitment, EXISTS (SELECT FROM reveals r WHERE r.deal_id = c.deal_id AND r.party = c.party)
FROM commitments c WHERE c.deal_id = $1 AND c.party = $2
