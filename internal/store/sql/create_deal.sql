-- SPEC 2.2; now < commit_deadline is decided here, on the database's clock.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
deal AS (
    INSERT INTO deals (deal_id, owner_hash, algorithm, params, mode, retention, parties,
                       commit_deadline, reveal_deadline, created_at, chain_hash, beacon_round, round_time, phase)
    SELECT $1, $2, $3, $4, $5, $6, cardinality($7::text[]), $9::bigint, $10::bigint, now, $11, $12, $13, 'COMMITTING'
    FROM clock WHERE now < $9::bigint
    RETURNING deal_id, created_at
),
seated AS (
    INSERT INTO parties (deal_id, party, label, token_hash)
    SELECT deal_id, i - 1, label, token_hash
    FROM deal, unnest($7::text[], $8::bytea[]) WITH ORDINALITY AS p (label, token_hash, i)
),
recorded AS (
    INSERT INTO idempotency (scope, body, response, expires_at)
    SELECT $14::bytea, $15::bytea, $16::bytea, created_at + $17::bigint FROM deal WHERE $14::bytea IS NOT NULL
)
SELECT now, EXISTS (SELECT FROM deal) FROM clock
