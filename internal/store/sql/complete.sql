-- Complete but not advanced: a process died between the last insert and the
-- phase change. The last party is one probe; only where it has acted are all counted.
SELECT deal_id FROM deals d
WHERE phase = 'COMMITTING'
  AND (SELECT c.party FROM commitments c WHERE c.deal_id = d.deal_id AND c.party = d.parties - 1) IS NOT NULL
  AND (SELECT count(*) FROM commitments c WHERE c.deal_id = d.deal_id) = d.parties
UNION ALL
SELECT deal_id FROM deals d
WHERE phase = 'REVEALING' AND reveals_closed_at IS NULL
  AND (SELECT r.party FROM reveals r WHERE r.deal_id = d.deal_id AND r.party = d.parties - 1) IS NOT NULL
  AND (SELECT count(*) FROM reveals r WHERE r.deal_id = d.deal_id) = d.parties
LIMIT $1
