-- Stores the reveals that reject the deal (shapley.v1), and ends the deal as VOID in the same statement. Runs after lock_wait.sql.
-- Reveals: $1 deal, $2 parties, $3 sealed, $4 revealed_at, $16 whether they come from seals, which count also after the deadline. Idempotency: $5 scope (null: no record), $6 body, $7 lifetime in seconds.
-- End: $8 number of commitments, $9 number of reveals (both as read before these reveals), $10 reveals_closed_at, $11 void_flakers,
--   $12 cert_id, $13 payload, $14 its MAC.
-- Fingerprints of the server secrets that the call used: $15. If another secret is in force, the statement stores nothing and
-- returns null. Otherwise it returns whether the deal ended. It stores nothing if the deal has changed since $8 and $9 were read.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
secret AS MATERIALIZED (
    SELECT fingerprint, (fingerprint = ALL ($15::bytea[])) IS NOT FALSE AS writes
    FROM (SELECT (SELECT fingerprint FROM server_secret WHERE singleton) AS fingerprint) AS in_force
),
ended AS (
    UPDATE deals SET phase = 'VOID', void_flakers = $11, cert_id = $12::text, reveals_closed_at = $10::bigint, ended_at = now
    FROM clock
    WHERE deal_id = $1 AND phase = 'REVEALING' AND (now < reveal_deadline OR $16::boolean) AND (SELECT writes FROM secret)
      AND (SELECT count(*) FROM commitments WHERE deal_id = $1) = $8
      AND (SELECT count(*) FROM reveals WHERE deal_id = $1) = $9
      AND NOT EXISTS (SELECT FROM reveals WHERE deal_id = $1 AND party = ANY ($2::int[]))
    RETURNING deal_id, retention
),
inserted AS (
    INSERT INTO reveals (deal_id, party, sealed, revealed_at, secret)
    SELECT deal_id, r.party, CASE WHEN retention = 'purge' THEN NULL ELSE r.sealed END, $4::bigint, (SELECT fingerprint FROM secret)
    FROM ended, unnest($2::int[], $3::bytea[]) AS r (party, sealed)
),
purged AS (
    UPDATE reveals SET sealed = NULL FROM ended
    WHERE reveals.deal_id = $1 AND reveals.deal_id = ended.deal_id AND ended.retention = 'purge'
),
unsealed AS (
    UPDATE seals s SET sealed = NULL, secret = NULL,
        state = CASE WHEN $16 AND s.party = ANY ($2) THEN 'opened' WHEN s.state = 'sealed' THEN 'unused' ELSE s.state END
    FROM ended e WHERE s.deal_id = $1 AND s.deal_id = e.deal_id AND (s.state = 'sealed' OR e.retention = 'purge')
),
certified AS (
    INSERT INTO certificates (cert_id, deal_id, payload, created_at, mac)
    SELECT $12::text, deal_id, $13::bytea, $4::bigint, $14::bytea FROM ended
),
recorded AS (
    INSERT INTO idempotency (scope, body, expires_at)
    SELECT $5::bytea, $6::bytea, $4::bigint + $7::bigint FROM ended WHERE $5::bytea IS NOT NULL
)
SELECT CASE WHEN (SELECT writes FROM secret) THEN EXISTS (SELECT FROM ended) END
