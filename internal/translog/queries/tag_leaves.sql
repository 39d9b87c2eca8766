-- Tags leaves: $1 their indexes, $2 their entries, $3 the tags. A tag that is
-- taken stays as it is, and a leaf that has another entry gets none.
INSERT INTO translog.tags (tag, leaf_index)
SELECT w.tag, w.leaf_index FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS w (leaf_index, entry, tag)
JOIN translog.leaves l ON l.leaf_index = w.leaf_index AND l.entry = w.entry
ORDER BY w.leaf_index
ON CONFLICT DO NOTHING
