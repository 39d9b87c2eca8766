-- Cancels a deal before its commit_deadline if no counterparty has committed (SPEC 3). A counterparty is any party except the
-- initiator, party 0. Runs after lock_wait.sql.
-- Deal: $1. Idempotency: $2 scope (null: no record), $3 body, $4 response, $5 lifetime in seconds.
-- Returns whether the deal was cancelled.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
cancelled AS (
    UPDATE deals SET phase = 'CANCELLED', ended_at = now FROM clock
    WHERE deal_id = $1 AND phase = 'COMMITTING' AND now < commit_deadline
      AND NOT EXISTS (SELECT FROM commitments WHERE deal_id = $1 AND party <> 0)
    RETURNING deal_id, now
),
unsealed AS (
    UPDATE seals s SET sealed = NULL, secret = NULL, state = 'unused' FROM cancelled c WHERE s.deal_id = $1 AND s.deal_id = c.deal_id
),
recorded AS (
    INSERT INTO idempotency (scope, body, response, expires_at)
    SELECT $2::bytea, $3::bytea, $4::bytea, now + $5::bigint FROM cancelled WHERE $2::bytea IS NOT NULL
)
SELECT EXISTS (SELECT FROM cancelled)
