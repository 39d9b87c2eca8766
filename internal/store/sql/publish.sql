-- Publishes a group of certificates: signature and leaf belong together. The first to store a leaf stands; a signature
-- without a leaf was handed to nobody and is replaced. $1 cert_ids, $2 signatures, $3 leaf indexes.
UPDATE certificates c SET signature = w.signature, leaf_index = w.leaf_index
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS w (cert_id, signature, leaf_index)
WHERE c.cert_id = ANY($1) AND c.cert_id = w.cert_id
  AND coalesce(c.leaf_index, -1) = -1 -- IS NULL may become a scan of all pending ones
RETURNING c.cert_id
