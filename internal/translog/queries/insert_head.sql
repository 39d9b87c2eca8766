-- Stores a head unless its size has one. $5 is the last entry under the head
-- where the caller knows it: a database that was swapped for an older copy
-- holds another one there. No conflict target: of two inserts at once, either
-- unique index may be the one that reports the conflict.
INSERT INTO translog.tree_heads (tree_size, root, digest, signature)
SELECT $1, $2, $3, $4
WHERE $5::bytea IS NULL OR EXISTS (SELECT FROM translog.leaves WHERE leaf_index = $1::bigint - 1 AND entry = $5)
ON CONFLICT DO NOTHING
