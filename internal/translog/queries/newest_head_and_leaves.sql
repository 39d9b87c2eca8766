-- The newest head, as a row with a signature, and the leaves asked for.
(SELECT tree_size AS at, root AS value, signature FROM translog.tree_heads ORDER BY tree_size DESC LIMIT 1)
UNION ALL
SELECT leaf_index, entry, NULL FROM translog.leaves WHERE leaf_index = ANY ($1::bigint[])
UNION ALL
SELECT leaf_index, entry, NULL FROM translog.leaves WHERE entry = ANY ($2::bytea[])
