SELECT node_index, hash FROM translog.nodes WHERE level = $3 AND node_index >= $1 AND node_index < $2 ORDER BY node_index
