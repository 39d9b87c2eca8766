SELECT tree_size, digest, note FROM translog.checkpoints WHERE tree_size > $1 AND tree_size <= $2 ORDER BY tree_size
