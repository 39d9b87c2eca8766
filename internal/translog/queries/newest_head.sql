SELECT tree_size, root, signature FROM translog.tree_heads ORDER BY tree_size DESC LIMIT 1
