SELECT entry, leaf_index FROM translog.leaves WHERE entry = ANY ($1::bytea[])
