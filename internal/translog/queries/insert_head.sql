-- No conflict target: of two inserts at once, either unique index may be the one
-- that tells.
INSERT INTO translog.tree_heads (tree_size, root, digest, signature) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
