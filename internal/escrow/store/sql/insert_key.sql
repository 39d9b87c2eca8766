-- Stores an API key. Key: $1 hash. Idempotency: $2 scope (null: no record), $3 body, $4 response, $5 lifetime in seconds.
-- Fingerprint of the record's server secret: $6. If another secret is in force, the statement stores nothing and returns false.
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
