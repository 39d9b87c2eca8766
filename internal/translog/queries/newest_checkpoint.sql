-- The newest checkpoint with its cosignatures, and the largest size whose quorum
-- was met, -1 where none was.
SELECT c.tree_size, c.note,
       ARRAY(SELECT s.line FROM translog.cosignatures s WHERE s.tree_size = c.tree_size ORDER BY s.witness),
       coalesce((SELECT w.tree_size FROM translog.witnessed w ORDER BY w.tree_size DESC LIMIT 1), -1)
FROM (SELECT tree_size, note FROM translog.checkpoints ORDER BY tree_size DESC LIMIT 1) c
