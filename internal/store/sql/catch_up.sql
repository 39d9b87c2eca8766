-- Advances a deal in which all parties have acted, if the last act did not advance it. This happens only if a process of
-- the previous release died between its last insert and its change of phase. If two such statements run at once, one changes the row.
-- SPEC 2.4: commits_closed_at and reveals_closed_at are the times of the last commitment and the last reveal.
WITH committed AS (
    UPDATE deals SET phase = 'REVEALING', commits_closed_at = (SELECT max(committed_at) FROM commitments WHERE deal_id = $1)
    WHERE deal_id = $1 AND phase = 'COMMITTING' AND parties = (SELECT count(*) FROM commitments WHERE deal_id = $1)
)
UPDATE deals SET reveals_closed_at = (SELECT max(revealed_at) FROM reveals WHERE deal_id = $1)
WHERE deal_id = $1 AND phase = 'REVEALING' AND chain_hash IS NOT NULL AND reveals_closed_at IS NULL
  AND parties = (SELECT count(*) FROM reveals WHERE deal_id = $1)
