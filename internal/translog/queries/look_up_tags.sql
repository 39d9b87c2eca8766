SELECT tag, leaf_index FROM translog.tags WHERE tag = ANY ($1::bytea[])
