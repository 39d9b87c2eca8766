-- All have committed; one UPDATE wins. SPEC 2.4: commits_closed_at is when the last one was accepted.
UPDATE deals SET phase = 'REVEALING',
    commits_closed_at = (SELECT max(committed_at) FROM commitments c WHERE c.deal_id = $1)
WHERE deal_id = $1 AND phase = 'COMMITTING'
  AND NOT EXISTS (SELECT FROM parties p WHERE p.deal_id = $1
      AND NOT EXISTS (SELECT FROM commitments c WHERE c.deal_id = $1 AND c.party = p.party))
