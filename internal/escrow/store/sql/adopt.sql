-- Replaces the end and the certificate of a deal by the given values. The log has the digest of the given certificate. Runs after
-- lock_wait.sql.
-- $1 deal, $2 cert_id, $3 payload, $4 its MAC, $5 signature, $6 leaf_index, $7 phase, $8 commits_closed_at,
-- $9 reveals_closed_at, $10 computed_at, $11 result, $12 void_flakers.
-- Returns false if the deal does not exist.
WITH restored AS (
    INSERT INTO certificates (cert_id, deal_id, payload, mac, signature, leaf_index, created_at)
    SELECT $2, deal_id, $3, $4, $5, $6, floor(extract(epoch FROM clock_timestamp()))::bigint FROM deals WHERE deal_id = $1
    ON CONFLICT (deal_id) DO UPDATE SET cert_id = excluded.cert_id, payload = excluded.payload, mac = excluded.mac,
        signature = excluded.signature, leaf_index = excluded.leaf_index
    RETURNING deal_id
),
ended AS (
    UPDATE deals d SET phase = $7, commits_closed_at = $8::bigint, reveals_closed_at = $9::bigint, computed_at = $10::bigint,
        result = $11::bytea, void_flakers = $12::int[], cert_id = $2,
        ended_at = floor(extract(epoch FROM clock_timestamp()))
    FROM restored r WHERE d.deal_id = $1 AND d.deal_id = r.deal_id
    RETURNING d.deal_id, d.retention
),
purged AS (
    UPDATE reveals r SET sealed = NULL FROM ended e WHERE r.deal_id = $1 AND r.deal_id = e.deal_id AND e.retention = 'purge'
),
unsealed AS (
    UPDATE seals s SET sealed = NULL, secret = NULL, state = CASE s.state WHEN 'sealed' THEN 'unused' ELSE s.state END
    FROM ended e WHERE s.deal_id = $1 AND s.deal_id = e.deal_id AND (s.state = 'sealed' OR e.retention = 'purge')
)
SELECT EXISTS (SELECT FROM ended)
