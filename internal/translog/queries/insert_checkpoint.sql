-- No conflict target: of two inserts at once, either unique index may be the one
-- that reports the conflict.
INSERT INTO translog.checkpoints (tree_size, digest, note) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
