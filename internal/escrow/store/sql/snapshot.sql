-- Reads the current state of a group of deals. $1: deals. $2 and $3: the first and last party whose commitment and reveal are
-- wanted. $4: whether the sealed inputs are wanted. $5: whether attested_by is wanted. $6: the most bytes of inputs of one deal to
-- return; for a deal with more, inputs is null. $7: the most bytes of a result to return;
-- a longer one is null. $8: whether the counts and the last reveal are wanted; else they are null. All columns of a deal are from the same moment. Returns each deal with the position of its query, counted from 1.
SELECT w.n, d.parties, d.phase, d.commits_closed_at, d.reveals_closed_at, d.computed_at,
       CASE WHEN octet_length(d.result) <= $7::bigint THEN d.result END, coalesce(octet_length(d.result), 0), d.void_flakers, d.cert_id,
       (SELECT c.leaf_index FROM certificates c WHERE c.cert_id = d.cert_id),
       coalesce((SELECT size FROM certified WHERE singleton), 0),
       CASE WHEN w.counts THEN (SELECT count(*) FROM commitments c WHERE c.deal_id = d.deal_id) END,
       CASE WHEN w.counts THEN (SELECT count(*) FROM reveals r WHERE r.deal_id = d.deal_id) END,
       CASE WHEN w.counts THEN (SELECT coalesce(max(r.revealed_at), 0) FROM reveals r WHERE r.deal_id = d.deal_id) END,
       floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       ARRAY(SELECT c.party FROM commitments c WHERE c.deal_id = d.deal_id AND c.party BETWEEN w.first AND w.last ORDER BY c.party),
       ARRAY(SELECT c.commitment FROM commitments c WHERE c.deal_id = d.deal_id AND c.party BETWEEN w.first AND w.last ORDER BY c.party),
       ARRAY(SELECT r.party FROM reveals r WHERE r.deal_id = d.deal_id AND r.party BETWEEN w.first AND w.last ORDER BY r.party),
       stored.bytes,
       CASE WHEN stored.bytes <= $6::bigint THEN ARRAY(SELECT r.sealed FROM reveals r WHERE r.deal_id = d.deal_id ORDER BY r.party) END,
       CASE WHEN w.attested THEN ARRAY(SELECT c.attested_by FROM commitments c WHERE c.deal_id = d.deal_id AND c.party BETWEEN w.first AND w.last ORDER BY c.party) END,
       d.seal_time, CASE WHEN NOT w.counts THEN NULL WHEN d.seal_time IS NOT NULL AND d.phase = 'REVEALING' THEN (SELECT count(*) FROM seals s WHERE s.deal_id = d.deal_id AND s.state = 'sealed') ELSE 0 END,
       d.seal_time IS NOT NULL AND w.attested AND EXISTS (SELECT FROM seals s WHERE s.deal_id = d.deal_id AND s.state = 'opened')
FROM unnest($1::text[], $2::int[], $3::int[], $4::boolean[], $5::boolean[], $8::boolean[]) WITH ORDINALITY AS w (deal_id, first, last, inputs, attested, counts, n)
CROSS JOIN LATERAL (
    SELECT deal_id, parties, phase, commits_closed_at, reveals_closed_at, computed_at, result, void_flakers, cert_id, seal_time
    FROM deals WHERE deal_id = w.deal_id OFFSET 0 -- the OFFSET makes the planner read deals by key
) AS d
CROSS JOIN LATERAL (
    -- octet_length does not read the value: an input of over 2 KB is stored apart from its row.
    SELECT CASE WHEN w.inputs THEN (SELECT coalesce(sum(octet_length(r.sealed)), 0) FROM reveals r WHERE r.deal_id = d.deal_id) END AS bytes OFFSET 0
) AS stored
