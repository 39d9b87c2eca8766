-- One statement, one snapshot: the phase and the counts belong together.
SELECT d.phase, d.commits_closed_at, d.reveals_closed_at, d.computed_at, d.result, d.void_flakers, d.cert_id,
       EXISTS (SELECT FROM certificates c WHERE c.cert_id = d.cert_id AND c.leaf_index IS NOT NULL),
       (SELECT count(*) FROM commitments c WHERE c.deal_id = d.deal_id),
       (SELECT count(*) FROM reveals r WHERE r.deal_id = d.deal_id),
       (SELECT coalesce(max(revealed_at), 0) FROM reveals r WHERE r.deal_id = d.deal_id),
       floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
FROM deals d WHERE d.deal_id = $1
