-- Whether an API key is known, for a database that takes no changes. $1 its hash.
SELECT EXISTS (SELECT FROM api_keys WHERE key_hash = $1)
