-- Reads at most $1 inputs that are encrypted under a former server secret. The list ends early once its inputs have $2 bytes or more.
SELECT deal_id, party, sealed FROM (
    SELECT deal_id, party, sealed, coalesce(sum(octet_length(sealed)) OVER (ORDER BY deal_id, party ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM (
        SELECT deal_id, party, sealed FROM reveals
        WHERE secret = ANY (ARRAY(SELECT unnest(former) FROM server_secret WHERE singleton)) AND sealed IS NOT NULL LIMIT $1
    ) AS batch
) AS next
WHERE before < $2::bigint ORDER BY deal_id, party
