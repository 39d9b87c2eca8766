-- Lists at most $1 REVEALING deals in which every party has revealed: a process died before it stored the end of the deal, or an
-- input is lost and the deal waits for its deadline. Without the deals that wait for their draw.
-- To save work, the statement first looks up the reveal of the last party. It counts all reveals only if this reveal exists.
-- For 3 seconds after its last reveal a deal is not listed, because the call that made this reveal may still work on the deal.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now)
SELECT deal_id FROM deals d
WHERE phase = 'REVEALING' AND reveals_closed_at IS NULL
  AND (SELECT r.party FROM reveals r WHERE r.deal_id = d.deal_id AND r.party = d.parties - 1) IS NOT NULL
  AND (SELECT count(*) = d.parties AND max(revealed_at) < (SELECT now FROM clock) - 3 FROM reveals r WHERE r.deal_id = d.deal_id)
LIMIT $1
