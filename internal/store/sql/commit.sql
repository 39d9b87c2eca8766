-- A group of commitments, of any deals, after lock_share.sql. $1 deals, $2 parties, $3 commitments; idempotency: $4
-- scopes (null: none), $5 bodies, $6 lifetimes. It answers those that were inserted.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::int[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bigint[])
        AS w (deal_id, party, value, scope, body, lifetime)
),
inserted AS (
    INSERT INTO commitments (deal_id, party, commitment, committed_at)
    SELECT deal_id, party, value, now FROM wanted JOIN deals USING (deal_id), clock
    WHERE phase = 'COMMITTING' AND now < commit_deadline
    ORDER BY deal_id, party
    ON CONFLICT DO NOTHING
    RETURNING deal_id, party, committed_at
),
recorded AS (
    INSERT INTO idempotency (scope, body, expires_at)
    SELECT scope, body, committed_at + lifetime FROM inserted JOIN wanted USING (deal_id, party)
    WHERE scope IS NOT NULL ORDER BY scope
)
SELECT deal_id, party FROM inserted
