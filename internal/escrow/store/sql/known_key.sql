-- Reports whether an API key is known, without the write of use_key.sql. $1: the key's hash.
SELECT EXISTS (SELECT FROM api_keys WHERE key_hash = $1)
