-- Looks up a group of invite tokens. $1: hashes of the tokens. Returns each known token with the position of its hash, counted
-- from 1.
SELECT w.n, p.deal_id, p.party
FROM unnest($1::bytea[]) WITH ORDINALITY AS w (hash, n)
CROSS JOIN LATERAL (SELECT deal_id, party FROM parties WHERE token_hash = w.hash OFFSET 0) AS p
