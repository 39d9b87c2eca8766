SELECT cert_id, payload, mac, signature, leaf_index FROM certificates WHERE cert_id = $1
