SELECT cert_id, payload, signature, leaf_index FROM certificates WHERE cert_id = $1
