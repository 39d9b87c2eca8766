-- A key's first use ends the replay of its creation. $1 its hash, $2: how many open deals are counted at most.
-- It answers whether the key is known, and about what its open deals cost, in the units of package caller: one, and one
-- for each 100 parties and each 10 KiB.
WITH used AS (DELETE FROM idempotency WHERE api_key = $1)
SELECT EXISTS (SELECT FROM api_keys WHERE key_hash = $1), (
    SELECT coalesce(sum(1 + parties / 100 + octet_length(params) / 10240), 0)::bigint
    FROM (SELECT parties, params FROM deals WHERE owner_hash = $1 AND (phase IN ('COMMITTING', 'REVEALING')) IS NOT FALSE LIMIT $2) AS open
)
