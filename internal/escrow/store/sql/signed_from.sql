SELECT cert_id, payload, signature, leaf_index FROM certificates
WHERE signature IS NOT NULL AND (leaf_index >= $1 OR leaf_index IS NULL)
