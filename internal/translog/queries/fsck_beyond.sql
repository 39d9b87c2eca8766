-- What no tree of $1 leaves has, with the first index or size of it; $2 nodes are complete in that tree.
SELECT 'leaves', min(leaf_index) FROM translog.leaves WHERE leaf_index >= $1
UNION ALL SELECT 'tree_heads', min(tree_size) FROM translog.tree_heads WHERE tree_size > $1
UNION ALL SELECT 'checkpoints', min(tree_size) FROM translog.checkpoints WHERE tree_size > $1
UNION ALL SELECT 'nodes', count(*) FROM translog.nodes HAVING count(*) <> $2
