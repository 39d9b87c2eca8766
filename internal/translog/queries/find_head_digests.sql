SELECT digest FROM translog.tree_heads WHERE digest = ANY ($1::bytea[])
