-- Deletes the idempotency record of an API key's creation, so that no replay returns the key after its first use. $1: the key's
-- hash. $2: the maximum number of open deals to count. Returns whether the key is known, and the cost of its open deals in units
-- (escrow/auth.go). A deal costs one unit, plus one for each full 100 parties and one for each full 10 KiB of params. Labels
-- and seat keys are not counted here. IS NOT FALSE lets the planner use the index deals_open.
WITH used AS (DELETE FROM idempotency WHERE api_key = $1)
SELECT EXISTS (SELECT FROM api_keys WHERE key_hash = $1), (
    SELECT coalesce(sum(1 + parties / 100 + octet_length(params) / 10240), 0)::bigint
    FROM (SELECT parties, params FROM deals WHERE owner_hash = $1 AND (phase IN ('COMMITTING', 'REVEALING')) IS NOT FALSE LIMIT $2) AS open
)
