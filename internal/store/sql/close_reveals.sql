-- All have revealed to a random.v1 deal: from here on only its draw is due.
UPDATE deals SET reveals_closed_at = (SELECT max(revealed_at) FROM reveals WHERE deal_id = $1)
WHERE deal_id = $1 AND phase = 'REVEALING' AND chain_hash IS NOT NULL AND reveals_closed_at IS NULL
  AND (SELECT count(*) FROM reveals WHERE deal_id = $1) = parties
