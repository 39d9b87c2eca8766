-- A page of at most $2 tags after the tag $1.
SELECT tag, leaf_index FROM translog.tags WHERE tag > $1 ORDER BY tag LIMIT $2
