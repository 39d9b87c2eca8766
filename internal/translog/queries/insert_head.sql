INSERT INTO translog.tree_heads (tree_size, root, digest, signature) VALUES ($1, $2, $3, $4)
ON CONFLICT (tree_size) DO NOTHING
