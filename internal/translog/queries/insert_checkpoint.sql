-- No conflict target: of two inserts at once, either unique index may be the one
-- that reports the conflict.
-- Another replica may have signed one since this one was due.
INSERT INTO translog.checkpoints (tree_size, digest, note)
SELECT $1, $2, $3
WHERE NOT EXISTS (
    SELECT FROM (SELECT tree_size, signed_at FROM translog.checkpoints ORDER BY tree_size DESC LIMIT 1) c
    WHERE c.tree_size >= $1 OR c.signed_at > clock_timestamp() - interval '1 second')
ON CONFLICT DO NOTHING
