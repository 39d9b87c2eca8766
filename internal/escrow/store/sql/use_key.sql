-- Looks up a group of API keys. $1: hashes of the keys. $2: for each key, the maximum number of open deals to count. It writes
-- nothing, because anybody can send unknown keys. Returns for each key the position of its hash, counted from 1, whether the key is known, and the cost of its open deals in units (escrow/auth.go). A
-- deal costs one unit, plus one for each full 100 parties and one for each full 10 KiB of params. Labels, seat keys and texts
-- are not counted here. IS NOT FALSE lets the planner use the index deals_open, and IS NOT NULL
-- that of the keys, where EXISTS would read all of them.
SELECT w.n, (SELECT true FROM api_keys WHERE key_hash = w.hash) IS NOT NULL, (
    SELECT coalesce(sum(1 + parties / 100 + octet_length(params) / 10240), 0)::bigint
    FROM (SELECT parties, params FROM deals WHERE owner_hash = w.hash AND (phase IN ('COMMITTING', 'REVEALING')) IS NOT FALSE LIMIT w.most) AS open
)
FROM unnest($1::bytea[], $2::int[]) WITH ORDINALITY AS w (hash, most, n)
