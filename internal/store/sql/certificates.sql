-- Reads a group of certificates, pending or published. Each query has a certificate's id in $1 or its deal's id in $2, and an
-- empty text in the other. Returns each found row with the number of its query, counted from 1.
SELECT w.n, c.cert_id, c.deal_id, c.payload, c.mac, c.signature, c.leaf_index
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (cert_id, deal_id, n)
CROSS JOIN LATERAL (
    SELECT cert_id, deal_id, payload, mac, signature, leaf_index FROM certificates WHERE cert_id = w.cert_id
    UNION ALL
    SELECT cert_id, deal_id, payload, mac, signature, leaf_index FROM certificates WHERE deal_id = w.deal_id
) AS c
