SELECT c.commitment, coalesce(c.committed_at, 0), r.party IS NOT NULL, coalesce(r.revealed_at, 0)
FROM parties p
LEFT JOIN commitments c USING (deal_id, party)
LEFT JOIN reveals r USING (deal_id, party)
WHERE p.deal_id = $1
ORDER BY p.party
