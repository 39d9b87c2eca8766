-- The largest size that each witness is known to have cosigned, -1 where none is.
SELECT w.witness, coalesce((SELECT s.tree_size FROM translog.cosignatures s WHERE s.witness = w.witness ORDER BY s.tree_size DESC LIMIT 1), -1)
FROM unnest($1::text[]) AS w (witness)
