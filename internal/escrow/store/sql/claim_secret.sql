-- Records the server secret in force. $1: its fingerprint. $2: true if the recorded secret is lost, so that $1 replaces it. If
-- $2 is false and a secret is recorded, nothing changes. A replacement also ends a rotation.
INSERT INTO server_secret (fingerprint, since) VALUES ($1, floor(extract(epoch FROM clock_timestamp())))
ON CONFLICT (singleton) DO UPDATE SET fingerprint = excluded.fingerprint, since = excluded.since, former = '{}'
WHERE $2::boolean
