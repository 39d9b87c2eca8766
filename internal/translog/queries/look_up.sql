-- The leaf index of each entry that is in the log; -1 (refused) of one that is
-- the digest of a head or a checkpoint.
SELECT entry, leaf_index FROM translog.leaves WHERE entry = ANY ($1::bytea[])
UNION ALL
SELECT digest, -1 FROM translog.tree_heads WHERE digest = ANY ($1::bytea[])
UNION ALL
SELECT digest, -1 FROM translog.checkpoints WHERE digest = ANY ($1::bytea[])
