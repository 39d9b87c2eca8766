-- $1 the fingerprint, $2 whether it replaces another one.
INSERT INTO server_secret (fingerprint, since) VALUES ($1, floor(extract(epoch FROM clock_timestamp())))
ON CONFLICT (singleton) DO UPDATE SET fingerprint = excluded.fingerprint, since = excluded.since WHERE $2::boolean
