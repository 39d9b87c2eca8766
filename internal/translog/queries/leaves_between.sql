SELECT leaf_index, entry FROM translog.leaves WHERE leaf_index >= $1 AND leaf_index < $2 ORDER BY leaf_index
