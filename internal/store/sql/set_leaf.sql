UPDATE certificates SET leaf_index = $2 WHERE cert_id = $1 AND leaf_index IS NULL
