-- Reads at most $3 pending certificates in the order of creation, starting after the certificate with created_at $1 and cert_id $2.
SELECT created_at, cert_id, payload, mac FROM certificates
WHERE leaf_index IS NULL AND (created_at, cert_id) > ($1::bigint, $2::text) ORDER BY created_at, cert_id LIMIT $3
