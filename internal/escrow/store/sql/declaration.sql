-- Reads the part of a deal that never changes. The last column is null if no party has a seat key.
SELECT d.owner_hash, d.algorithm, d.params, d.mode, d.retention, d.commit_deadline, d.reveal_deadline, d.created_at,
       d.chain_hash, d.beacon_round, d.round_time,
       p.labels, CASE WHEN p.keyed > 0 THEN p.seat_keys END
FROM deals d
CROSS JOIN LATERAL (
    SELECT array_agg(label ORDER BY party) AS labels, array_agg(seat_key ORDER BY party) AS seat_keys, count(seat_key) AS keyed
    FROM parties WHERE deal_id = d.deal_id
) AS p
WHERE d.deal_id = $1
