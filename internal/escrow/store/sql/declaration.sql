-- Reads the part of a deal that never changes. $2: the most bytes to return; for a larger deal, params and labels are null. The
-- first column is the approximate size. The last column is null if no party has a seat key.
SELECT s.bytes, d.owner_hash, d.algorithm, CASE WHEN s.bytes <= $2::bigint THEN d.params END, d.mode, d.retention, d.commit_deadline, d.reveal_deadline, d.created_at,
       d.chain_hash, d.beacon_round, d.round_time, coalesce(d.seals, ''), d.input_limit, coalesce(d.title, ''), coalesce(d.message, ''),
       coalesce(d.audience, ''), coalesce(d.acted_by, ''),
       p.labels, CASE WHEN p.keyed > 0 THEN p.seat_keys END
FROM deals d
CROSS JOIN LATERAL (SELECT octet_length(d.params) + 300 * d.parties + coalesce(octet_length(d.title), 0) + coalesce(octet_length(d.message), 0) AS bytes OFFSET 0) AS s
CROSS JOIN LATERAL (
    SELECT array_agg(label ORDER BY party) AS labels, array_agg(seat_key ORDER BY party) AS seat_keys, count(seat_key) AS keyed
    FROM parties WHERE deal_id = d.deal_id AND s.bytes <= $2::bigint
) AS p
WHERE d.deal_id = $1
