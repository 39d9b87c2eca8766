SELECT tree_size, root, signature FROM translog.tree_heads WHERE tree_size > $1 ORDER BY tree_size LIMIT $2
