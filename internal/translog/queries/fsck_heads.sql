SELECT tree_size, root, digest, signature FROM translog.tree_heads WHERE tree_size > $1 AND tree_size <= $2 ORDER BY tree_size
