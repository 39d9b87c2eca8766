-- $1 key hash, $2 scope, $3 body, $4 response, $5 lifetime in seconds; $2 null: no Idempotency-Key
-- $6 the server secret that the record is under: where another one is in force nothing is done, and the answer is false
WITH key AS (
    INSERT INTO api_keys (key_hash, created_at)
    SELECT $1::bytea, floor(extract(epoch FROM clock_timestamp()))
    WHERE ((SELECT fingerprint FROM server_secret WHERE singleton) = $6::bytea) IS NOT FALSE
    RETURNING key_hash, created_at
),
recorded AS (
    INSERT INTO idempotency (scope, body, response, api_key, expires_at)
    SELECT $2::bytea, $3::bytea, $4::bytea, key_hash, created_at + $5::bigint FROM key WHERE $2::bytea IS NOT NULL
)
SELECT EXISTS (SELECT FROM key)
