-- Reads at most $1 inputs and seals (seal) that are encrypted under a former server secret. The list ends early once its inputs have $2 bytes or more.
-- The order and the limit for each secret make the planner stop early in the indexes reveals_secret and seals_secret. Otherwise it may read all
-- entries of the former secrets for each batch.
SELECT deal_id, party, sealed, seal FROM (
    SELECT deal_id, party, sealed, seal, coalesce(sum(octet_length(sealed)) OVER (ORDER BY deal_id, party, seal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM (
        SELECT r.deal_id, r.party, r.sealed, r.seal FROM unnest((SELECT former FROM server_secret WHERE singleton)) AS f
        CROSS JOIN LATERAL (
            (SELECT deal_id, party, sealed, false AS seal FROM reveals WHERE secret = f AND sealed IS NOT NULL ORDER BY deal_id, party LIMIT $1)
            UNION ALL
            (SELECT deal_id, party, sealed, true FROM seals WHERE secret = f AND sealed IS NOT NULL ORDER BY deal_id, party LIMIT $1)
        ) AS r
        LIMIT $1
    ) AS batch
) AS next
WHERE before < $2::bigint ORDER BY deal_id, party, seal
