-- The newest published head, unless a checkpoint covers it or one was signed
-- within the last second.
SELECT h.tree_size, h.root, h.signature
FROM (SELECT tree_size, root, signature FROM translog.tree_heads ORDER BY tree_size DESC LIMIT 1) h
WHERE NOT EXISTS (
    SELECT FROM (SELECT tree_size, signed_at FROM translog.checkpoints ORDER BY tree_size DESC LIMIT 1) c
    WHERE c.tree_size >= h.tree_size OR c.signed_at > clock_timestamp() - interval '1 second')
