-- Ends a group of deals and stores their certificates. A deal ends only if it has not changed since its ending was computed.
-- $1 deals, $2 old phases, $3 new phases, $4 numbers of commitments, $5 numbers of reveals, $6 reveals_closed_at,
-- $7 computed_at, $8 results, $9 void_flakers (as text of an int[]), $10 cert_ids (null: no certificate), $11 payloads,
-- $12 their MACs, $13 times of the ends. $2, $4 and $5 are from the snapshot from which the ending was computed.
-- If all parties of a deal have revealed, the deal accepts no more inserts, and a check of its phase suffices. Any other deal
-- must be locked by lock.sql or lock_wait.sql before this statement, because another transaction may have inserted a row after
-- the ending was computed.
-- The seals of the deal that are not opened are deleted, and with retention purge also the failed ones.
-- Returns for each deal whether it was free and whether it ended. A deal is free if no other transaction held its lock at this
-- statement. A deal that lock.sql or lock_wait.sql must lock is free only if that statement locked it too.
WITH locked AS MATERIALIZED (SELECT string_to_array(current_setting('fairpact.locked', true), ' ') AS deals),
wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::int[], $6::bigint[], $7::bigint[], $8::bytea[],
            $9::text[], $10::text[], $11::bytea[], $12::bytea[], $13::bigint[])
        WITH ORDINALITY AS w (deal_id, was, becomes, commits, reveals, reveals_closed_at, computed_at, result, void_flakers, cert_id, payload, mac, created_at, n)
),
free AS MATERIALIZED (
    SELECT deal_id, parties FROM deals WHERE deal_id = ANY($1::text[]) ORDER BY deal_id FOR NO KEY UPDATE SKIP LOCKED
),
due AS MATERIALIZED (
    SELECT w.* FROM wanted w JOIN free f USING (deal_id)
    WHERE w.reveals = f.parties
       OR w.deal_id = ANY((SELECT deals FROM locked)::text[])
          AND w.commits = (SELECT count(*) FROM commitments c WHERE c.deal_id = w.deal_id)
          AND w.reveals = (SELECT count(*) FROM reveals r WHERE r.deal_id = w.deal_id)
),
ended AS (
    UPDATE deals d SET phase = due.becomes, reveals_closed_at = due.reveals_closed_at, computed_at = due.computed_at,
        result = due.result, void_flakers = due.void_flakers::int[], cert_id = due.cert_id, ended_at = due.created_at
    FROM due WHERE d.deal_id = ANY($1) AND d.deal_id = due.deal_id AND d.phase = due.was
    RETURNING d.deal_id, d.retention
),
purged AS (
    UPDATE reveals r SET sealed = NULL FROM ended e WHERE r.deal_id = ANY($1) AND r.deal_id = e.deal_id AND e.retention = 'purge'
),
unsealed AS (
    UPDATE seals s SET sealed = NULL, secret = NULL, state = CASE s.state WHEN 'sealed' THEN 'unused' ELSE s.state END
    FROM ended e WHERE s.deal_id = ANY($1) AND s.deal_id = e.deal_id AND (s.state = 'sealed' OR e.retention = 'purge')
),
certified AS (
    INSERT INTO certificates (cert_id, deal_id, payload, mac, created_at)
    SELECT cert_id, deal_id, payload, mac, created_at FROM due JOIN ended USING (deal_id) WHERE cert_id IS NOT NULL
)
SELECT f.deal_id IS NOT NULL AND (w.reveals = f.parties OR coalesce(w.deal_id = ANY((SELECT deals FROM locked)::text[]), false)), e.deal_id IS NOT NULL
FROM wanted w LEFT JOIN free f ON f.deal_id = w.deal_id LEFT JOIN ended e ON e.deal_id = w.deal_id
ORDER BY w.n
