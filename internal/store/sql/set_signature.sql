-- Stores a signature of a certificate without a leaf. Does nothing unless the stored signature equals $3 (null: none).
UPDATE certificates SET signature = $2
WHERE cert_id = $1 AND signature IS NOT DISTINCT FROM $3::text AND leaf_index IS NULL
