-- $1 key hash, $2 scope, $3 body, $4 response, $5 lifetime in seconds; $2 null: no Idempotency-Key
WITH key AS (
    INSERT INTO api_keys (key_hash, created_at)
    VALUES ($1, floor(extract(epoch FROM clock_timestamp())))
    RETURNING key_hash, created_at
)
INSERT INTO idempotency (scope, body, response, api_key, expires_at)
SELECT $2::bytea, $3::bytea, $4::bytea, key_hash, created_at + $5::bigint FROM key WHERE $2::bytea IS NOT NULL
