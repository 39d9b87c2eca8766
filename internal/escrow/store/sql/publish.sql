-- Publishes a group of certificates. $1 cert_ids, $2 signatures, $3 leaf indexes. A certificate that has a leaf index does not
-- change. For any other certificate, the given signature replaces a stored signature. This is safe, because callers get a
-- signature only after publication.
-- Returns the ids that this statement published.
UPDATE certificates c SET signature = w.signature, leaf_index = w.leaf_index
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS w (cert_id, signature, leaf_index)
WHERE c.cert_id = ANY($1) AND c.cert_id = w.cert_id
  AND coalesce(c.leaf_index, -1) = -1 -- with IS NULL instead, the planner may scan all pending certificates
RETURNING c.cert_id
