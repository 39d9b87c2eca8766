-- The first party from $2 on that has not committed. A party once seen never
-- goes missing again, so the caller starts where it last stopped.
SELECT p.party FROM parties p
WHERE p.deal_id = $1 AND p.party >= $2
  AND NOT EXISTS (SELECT FROM commitments c WHERE c.deal_id = p.deal_id AND c.party = p.party)
ORDER BY p.party LIMIT 1
