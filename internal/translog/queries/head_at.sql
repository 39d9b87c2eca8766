SELECT tree_size, root, signature FROM translog.tree_heads WHERE tree_size = $1
