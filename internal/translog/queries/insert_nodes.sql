INSERT INTO translog.nodes (level, node_index, hash)
SELECT level, node_index, hash FROM unnest($1::smallint[], $2::bigint[], $3::bytea[]) AS t (level, node_index, hash)
