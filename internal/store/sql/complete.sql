-- Complete but not advanced: a process died between the last insert and the
-- phase change. A random.v1 deal that is complete waits for its draw time.
SELECT deal_id FROM deals d WHERE phase = 'COMMITTING'
  AND NOT EXISTS (SELECT FROM parties p WHERE p.deal_id = d.deal_id
      AND NOT EXISTS (SELECT FROM commitments c WHERE c.deal_id = d.deal_id AND c.party = p.party))
UNION ALL
SELECT deal_id FROM deals d WHERE phase = 'REVEALING'
  AND (round_time IS NULL OR round_time <= extract(epoch FROM clock_timestamp()) - $1
      AND NOT EXISTS (SELECT FROM reveals r WHERE r.deal_id = d.deal_id AND r.revealed_at > extract(epoch FROM clock_timestamp()) - $1))
  AND NOT EXISTS (SELECT FROM parties p WHERE p.deal_id = d.deal_id
      AND NOT EXISTS (SELECT FROM reveals r WHERE r.deal_id = d.deal_id AND r.party = p.party))
LIMIT $2
