-- Deletes the params, texts, inputs and seals of ended deals, the oldest first: of deals whose reveal_deadline and end are both at
-- least $1 seconds ago, unless the certificate is pending. One statement takes at most 100 deals, and another one only while those before it
-- have under 10,000 parties. Empty params mark a deal as done, so an interrupted sweep continues with the others. Two sweeps at once
-- do not wait for each other. computed_at stands for an ended_at that is null.
WITH ended AS MATERIALIZED (
    SELECT deal_id, parties, retention, greatest(reveal_deadline, computed_at, ended_at) AS at FROM deals d
    WHERE phase IN ('COMPUTED', 'VOID', 'EXPIRED', 'CANCELLED') AND params <> ''
      AND greatest(reveal_deadline, computed_at, ended_at) <= (SELECT extract(epoch FROM clock_timestamp())::bigint) - $1::bigint
      AND coalesce((SELECT c.leaf_index IS NOT NULL FROM certificates c WHERE c.deal_id = d.deal_id), true)
    ORDER BY greatest(reveal_deadline, computed_at, ended_at) LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED
),
old AS MATERIALIZED (
    SELECT deal_id, retention FROM (SELECT deal_id, retention, sum(parties) OVER (ORDER BY at, deal_id) - parties AS before FROM ended) AS e WHERE before < 10000
),
inputs AS (
    UPDATE reveals SET sealed = NULL WHERE deal_id = ANY (ARRAY(SELECT deal_id FROM old WHERE retention = 'standard'))
),
texts AS (
    UPDATE seals SET sealed = NULL, secret = NULL WHERE deal_id = ANY (ARRAY(SELECT deal_id FROM old)) AND state = 'failed' -- after the end only such a seal has a text
)
UPDATE deals SET params = '', title = NULL, message = NULL WHERE deal_id = ANY (ARRAY(SELECT deal_id FROM old))
