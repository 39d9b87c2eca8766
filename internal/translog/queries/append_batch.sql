-- Appends a batch to the tree as the caller knows it, or does nothing: where the
-- head is another one, an entry is in the log or the digest of one of its heads
-- or checkpoints, or a tag is taken. An UPDATE that waits for the row decides by what its last
-- holder committed, and the leaves cannot have changed where the head has not.
-- The tags can, where known leaves were tagged: the primary key then fails the
-- statement. $11 are the tags, $12 their leaves, which may be old ones.
WITH moved AS (
    UPDATE translog.log_head SET size = $4, root = $5, hashes = $6
    WHERE singleton AND size = $1 AND root = $2 AND hashes = $3
      AND NOT EXISTS (SELECT FROM translog.tree_heads WHERE digest = ANY ($7::bytea[]))
      AND NOT EXISTS (SELECT FROM translog.checkpoints WHERE digest = ANY ($7::bytea[]))
      AND NOT EXISTS (SELECT FROM translog.leaves WHERE entry = ANY ($7::bytea[]))
      AND NOT EXISTS (SELECT FROM translog.tags WHERE tag = ANY ($11::bytea[]))
    RETURNING true
), added AS (
    INSERT INTO translog.leaves (leaf_index, entry)
    SELECT $1 + n - 1, entry FROM moved, unnest($7::bytea[]) WITH ORDINALITY AS t (entry, n)
), tagged AS (
    INSERT INTO translog.tags (tag, leaf_index)
    SELECT tag, leaf_index FROM moved, unnest($11::bytea[], $12::bigint[]) AS t (tag, leaf_index)
), completed AS (
    INSERT INTO translog.nodes (level, node_index, hash)
    SELECT level, node_index, hash FROM moved, unnest($8::smallint[], $9::bigint[], $10::bytea[]) AS t (level, node_index, hash)
)
SELECT EXISTS (SELECT FROM moved)
