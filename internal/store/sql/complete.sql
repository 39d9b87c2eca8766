-- Complete but not advanced: a process died between the last insert and the
-- phase change. The last party is one probe; only where it has acted are all
-- counted. Within 3 seconds of the last act its caller is still at it.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now)
SELECT deal_id FROM deals d
WHERE phase = 'COMMITTING'
  AND (SELECT c.party FROM commitments c WHERE c.deal_id = d.deal_id AND c.party = d.parties - 1) IS NOT NULL
  AND (SELECT count(*) = d.parties AND max(committed_at) < (SELECT now FROM clock) - 3 FROM commitments c WHERE c.deal_id = d.deal_id)
UNION ALL
SELECT deal_id FROM deals d
WHERE phase = 'REVEALING' AND reveals_closed_at IS NULL
  AND (SELECT r.party FROM reveals r WHERE r.deal_id = d.deal_id AND r.party = d.parties - 1) IS NOT NULL
  AND (SELECT count(*) = d.parties AND max(revealed_at) < (SELECT now FROM clock) - 3 FROM reveals r WHERE r.deal_id = d.deal_id)
LIMIT $1
