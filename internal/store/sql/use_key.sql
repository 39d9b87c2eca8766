-- A key's first use ends the replay of its creation.
WITH used AS (DELETE FROM idempotency WHERE api_key = $1)
SELECT EXISTS (SELECT FROM api_keys WHERE key_hash = $1)
