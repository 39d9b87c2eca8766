-- Stores the signature $2 of the certificate $1, unless the certificate has a leaf. It replaces only the signature $3 (null: none
-- is stored yet).
UPDATE certificates SET signature = $2
WHERE cert_id = $1 AND signature IS NOT DISTINCT FROM $3::text AND leaf_index IS NULL
