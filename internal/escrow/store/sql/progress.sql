-- Reads the progress of the deals $1, for calls that wait for a change. A deal's progress is a summary of the deal
-- (store.Progress). The last column says whether a deadline of the deal has passed and no process has
-- handled that deadline yet, or seals are due to be opened.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now)
SELECT d.deal_id, d.phase,
       CASE d.phase WHEN 'COMMITTING' THEN (SELECT count(*) FROM commitments c WHERE c.deal_id = d.deal_id)
                    WHEN 'REVEALING' THEN (SELECT count(*) FROM reveals r WHERE r.deal_id = d.deal_id) ELSE 0 END,
       d.phase = 'REVEALING' AND d.reveals_closed_at IS NOT NULL,
       (SELECT c.leaf_index FROM certificates c WHERE c.cert_id = d.cert_id) IS NOT NULL,
       coalesce((SELECT now FROM clock) >= CASE WHEN d.phase = 'COMMITTING' THEN d.commit_deadline
                                                WHEN d.phase = 'REVEALING' AND d.reveals_closed_at IS NULL THEN d.reveal_deadline END, false)
       OR d.phase = 'REVEALING' AND coalesce(d.seal_time <= (SELECT now FROM clock), false) 
          AND (SELECT s.party FROM seals s WHERE s.deal_id = d.deal_id AND s.state = 'sealed' LIMIT 1) IS NOT NULL
FROM unnest($1::text[]) AS w (deal_id)
CROSS JOIN LATERAL (
    SELECT deal_id, phase, commit_deadline, reveal_deadline, reveals_closed_at, cert_id, seal_time
    FROM deals WHERE deal_id = w.deal_id OFFSET 0 -- the OFFSET makes the planner read deals by key
) AS d
