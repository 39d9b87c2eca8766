-- Records the server secret in force. $1: its fingerprint. $2: null, or the fingerprints of the secrets that the file holds if the
-- recorded secret is lost, so that $1 replaces it. If $2 is null and a secret is recorded, nothing changes. A replacement keeps
-- the former secrets that the file holds: a rotation reseals what is stored under them.
INSERT INTO server_secret (fingerprint, since) VALUES ($1, floor(extract(epoch FROM clock_timestamp())))
ON CONFLICT (singleton) DO UPDATE SET fingerprint = excluded.fingerprint, since = excluded.since,
    former = ARRAY(SELECT f FROM unnest(server_secret.former) AS f WHERE f = ANY ($2::bytea[]) AND f <> $1)
WHERE $2::bytea[] IS NOT NULL
