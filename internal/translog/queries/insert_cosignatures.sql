INSERT INTO translog.cosignatures (tree_size, witness, line)
SELECT $1, witness, line FROM unnest($2::text[], $3::text[]) AS t (witness, line)
ON CONFLICT DO NOTHING
