-- Reads the pending certificates after one, in the order of their creation. $1 its created_at, $2 its cert_id, $3 most rows.
SELECT created_at, cert_id, payload, mac FROM certificates
WHERE leaf_index IS NULL AND (created_at, cert_id) > ($1::bigint, $2::text) ORDER BY created_at, cert_id LIMIT $3
