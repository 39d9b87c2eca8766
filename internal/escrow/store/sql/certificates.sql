-- Reads a group of certificates, pending or published. $1 and $2 have one element for each query: the certificate's id in $1,
-- or the deal's id in $2. The other element is an empty text. $3: the most bytes of one payload to return; a longer payload is
-- null. Returns each certificate with the position of its query, counted from 1, and the length of its payload.
SELECT w.n, c.cert_id, c.deal_id, octet_length(c.payload), CASE WHEN octet_length(c.payload) <= $3::bigint THEN c.payload END, c.mac, c.signature, c.leaf_index
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (cert_id, deal_id, n)
CROSS JOIN LATERAL (
    SELECT cert_id, deal_id, payload, mac, signature, leaf_index FROM certificates WHERE cert_id = w.cert_id
    UNION ALL
    SELECT cert_id, deal_id, payload, mac, signature, leaf_index FROM certificates WHERE deal_id = w.deal_id
) AS c
