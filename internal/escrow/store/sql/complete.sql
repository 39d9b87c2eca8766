-- Lists at most $1 deals in which every party has acted and whose next step has not been taken. An act is a commitment in a
-- COMMITTING deal, and a reveal in a REVEALING deal.
-- A REVEALING deal: a process died before it stored the end of the deal, or an input is lost and the deal waits for its deadline.
-- A COMMITTING deal: only a process of the previous release leaves such a deal (see catch_up.sql).
-- To save work, the statement first looks up the act of the last party. It counts all acts only if this act exists.
-- For 3 seconds after its last act a deal is not listed, because the call that made this act may still work on the deal.
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
