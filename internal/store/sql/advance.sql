-- All have committed; one UPDATE wins. SPEC 2.4: commits_closed_at is when the last one was accepted.
UPDATE deals SET phase = 'REVEALING',
    commits_closed_at = (SELECT max(committed_at) FROM commitments c WHERE c.deal_id = $1)
WHERE deal_id = $1 AND phase = 'COMMITTING'
  AND parties = (SELECT count(*) FROM commitments c WHERE c.deal_id = $1)
