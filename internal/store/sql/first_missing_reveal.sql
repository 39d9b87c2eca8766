SELECT p.party FROM parties p
WHERE p.deal_id = $1 AND p.party >= $2
  AND NOT EXISTS (SELECT FROM reveals r WHERE r.deal_id = p.deal_id AND r.party = p.party)
ORDER BY p.party LIMIT 1
