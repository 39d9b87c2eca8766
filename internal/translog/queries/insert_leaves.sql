INSERT INTO translog.leaves (leaf_index, entry)
SELECT $1::bigint + n - 1, entry FROM unnest($2::bytea[]) WITH ORDINALITY AS t (entry, n)
