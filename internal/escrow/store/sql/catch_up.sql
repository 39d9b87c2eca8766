-- Advances deal $1 if the last commitment or reveal did not advance it. If all parties have committed, the deal becomes REVEALING.
-- If all parties of a random.v1 deal have revealed, reveals_closed_at is set. There is a deal to advance only if a process of the
-- previous release died between its last insert and its change of the deal. If the statement runs twice at once, only one run
-- changes the row.
-- SPEC 2.4: commits_closed_at and reveals_closed_at are the times of the last commitment and the last reveal.
WITH committed AS (
    UPDATE deals SET phase = 'REVEALING', commits_closed_at = (SELECT max(committed_at) FROM commitments WHERE deal_id = $1)
    WHERE deal_id = $1 AND phase = 'COMMITTING' AND parties = (SELECT count(*) FROM commitments WHERE deal_id = $1)
)
UPDATE deals SET reveals_closed_at = (SELECT max(revealed_at) FROM reveals WHERE deal_id = $1)
WHERE deal_id = $1 AND phase = 'REVEALING' AND chain_hash IS NOT NULL AND reveals_closed_at IS NULL
  AND parties = (SELECT count(*) FROM reveals WHERE deal_id = $1)
