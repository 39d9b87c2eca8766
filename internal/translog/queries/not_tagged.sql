-- Which of the leaves have another entry than is said, or do not have the tag.
SELECT w.leaf_index FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS w (leaf_index, entry, tag)
WHERE NOT EXISTS (SELECT FROM translog.leaves l WHERE l.leaf_index = w.leaf_index AND l.entry = w.entry)
   OR NOT EXISTS (SELECT FROM translog.tags t WHERE t.tag = w.tag AND t.leaf_index = w.leaf_index)
