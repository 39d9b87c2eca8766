-- $1 deal, $2 party, $3 commitment; idempotency: $4 scope, $5 body, $6 lifetime
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
inserted AS (
    INSERT INTO commitments (deal_id, party, commitment, committed_at)
    SELECT deal_id, $2, $3, now FROM deals, clock
    WHERE deal_id = $1 AND phase = 'COMMITTING' AND now < commit_deadline
    ON CONFLICT DO NOTHING
    RETURNING committed_at
),
recorded AS (
    INSERT INTO idempotency (scope, body, expires_at)
    SELECT $4::bytea, $5::bytea, committed_at + $6::bigint FROM inserted WHERE $4::bytea IS NOT NULL
)
SELECT EXISTS (SELECT FROM inserted)
