-- $1 deal, $2 party, $3 sealed input; idempotency: $4 scope, $5 body, $6 lifetime
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
inserted AS (
    INSERT INTO reveals (deal_id, party, sealed, revealed_at)
    SELECT deal_id, $2, $3, now FROM deals, clock
    WHERE deal_id = $1 AND phase = 'REVEALING' AND now < reveal_deadline
    ON CONFLICT DO NOTHING
    RETURNING revealed_at
),
recorded AS (
    INSERT INTO idempotency (scope, body, expires_at)
    SELECT $4::bytea, $5::bytea, revealed_at + $6::bigint FROM inserted WHERE $4::bytea IS NOT NULL
)
SELECT EXISTS (SELECT FROM inserted)
