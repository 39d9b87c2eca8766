SELECT leaf_index FROM translog.leaves LEFT JOIN translog.tags USING (leaf_index) WHERE tag IS NULL ORDER BY leaf_index
