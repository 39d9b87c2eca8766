-- Deals whose deadline is within the horizon, and unfinished certificates.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms, floor(extract(epoch FROM clock_timestamp()))::bigint AS now)
(SELECT deal_id, commit_deadline * 1000 - ms FROM deals, clock
 WHERE phase = 'COMMITTING' AND commit_deadline <= now + $1 ORDER BY commit_deadline LIMIT $2)
UNION ALL
(SELECT deal_id, reveal_deadline * 1000 - ms FROM deals, clock
 WHERE phase = 'REVEALING' AND chain_hash IS NULL AND reveal_deadline <= now + $1 ORDER BY reveal_deadline LIMIT $2)
UNION ALL
-- random.v1: its reveal deadline, while someone is missing, or its draw
(SELECT deal_id, reveal_deadline * 1000 - ms FROM deals d, clock
 WHERE phase = 'REVEALING' AND chain_hash IS NOT NULL AND reveal_deadline <= now + $1
   AND (round_time <= now - $3 AND NOT EXISTS (SELECT FROM reveals r WHERE r.deal_id = d.deal_id AND r.revealed_at > now - $3)
     OR EXISTS (SELECT FROM parties p WHERE p.deal_id = d.deal_id
        AND NOT EXISTS (SELECT FROM reveals r WHERE r.deal_id = d.deal_id AND r.party = p.party)))
 ORDER BY reveal_deadline LIMIT $2)
UNION ALL
(SELECT deal_id, 0 FROM certificates WHERE leaf_index IS NULL ORDER BY created_at LIMIT $2)
