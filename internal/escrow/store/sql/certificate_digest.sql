SELECT sha256(payload) FROM certificates WHERE cert_id = $1
