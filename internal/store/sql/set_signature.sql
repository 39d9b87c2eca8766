-- The first stored signature wins; $3 is the one it may replace (null: none), never after the leaf is known.
UPDATE certificates SET signature = $2
WHERE cert_id = $1 AND signature IS NOT DISTINCT FROM $3::text AND leaf_index IS NULL
