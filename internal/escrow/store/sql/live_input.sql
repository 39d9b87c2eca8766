-- Reads one sealed input of each of at most 8 deals that have not ended. Each half of the union reads its own index. The first
-- half takes the deals with the latest reveal deadlines, and the second half the deals with the latest draws.
WITH revealing AS (
    (SELECT deal_id FROM deals WHERE phase = 'REVEALING' AND reveals_closed_at IS NULL ORDER BY reveal_deadline DESC LIMIT 8)
    UNION ALL
    (SELECT deal_id FROM deals WHERE phase = 'REVEALING' AND reveals_closed_at IS NOT NULL ORDER BY greatest(reveals_closed_at, round_time) DESC LIMIT 8)
)
SELECT r.deal_id, r.party, r.sealed
FROM revealing d CROSS JOIN LATERAL (SELECT deal_id, party, sealed FROM reveals WHERE deal_id = d.deal_id AND sealed IS NOT NULL LIMIT 1) AS r
LIMIT 8
