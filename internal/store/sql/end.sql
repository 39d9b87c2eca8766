-- The end of a deal and the birth of its certificate, after lock_update.sql, and
-- only where nothing has changed since the ending was worked out.
-- $1 deal, $2 from, $3 to, $4 commits, $5 reveals, $6 reveals_closed_at, $7 computed_at, $8 result, $9 void_flakers,
-- $10 cert_id, $11 payload, $12 certificate's created_at, $13 its MAC
WITH ended AS (
    UPDATE deals SET phase = $3, reveals_closed_at = $6::bigint, computed_at = $7::bigint,
        result = $8::bytea, void_flakers = $9::int[], cert_id = $10::text
    WHERE deal_id = $1 AND phase = $2
      AND (SELECT count(*) FROM commitments WHERE deal_id = $1) = $4
      AND (SELECT count(*) FROM reveals WHERE deal_id = $1) = $5
    RETURNING deal_id, retention
),
purged AS (
    UPDATE reveals SET sealed = NULL FROM ended
    WHERE reveals.deal_id = ended.deal_id AND ended.retention = 'purge'
),
certified AS (
    INSERT INTO certificates (cert_id, deal_id, payload, created_at, mac)
    SELECT $10::text, deal_id, $11::bytea, $12::bigint, $13::bytea FROM ended WHERE $10::text IS NOT NULL
)
SELECT EXISTS (SELECT FROM ended)
