-- Deletes the idempotency record of an API key's creation, so that no replay returns the key after its first use. $1: the key's hash.
DELETE FROM idempotency WHERE api_key = $1
