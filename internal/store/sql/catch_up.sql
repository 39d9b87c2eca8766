-- What a process of an older release leaves behind when it dies between the last insert of a phase and the change of
-- phase. One UPDATE wins. SPEC 2.4: closed when the last one was accepted.
WITH committed AS (
    UPDATE deals SET phase = 'REVEALING', commits_closed_at = (SELECT max(committed_at) FROM commitments WHERE deal_id = $1)
    WHERE deal_id = $1 AND phase = 'COMMITTING' AND parties = (SELECT count(*) FROM commitments WHERE deal_id = $1)
)
UPDATE deals SET reveals_closed_at = (SELECT max(revealed_at) FROM reveals WHERE deal_id = $1)
WHERE deal_id = $1 AND phase = 'REVEALING' AND chain_hash IS NOT NULL AND reveals_closed_at IS NULL
  AND parties = (SELECT count(*) FROM reveals WHERE deal_id = $1)
