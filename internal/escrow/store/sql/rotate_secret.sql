-- Puts the server secret $1 in force in place of the secret $2, which becomes a former secret. Both are fingerprints. Does
-- nothing if $2 is not in force. Runs in the transaction that has locked the table `idempotency` (Store.RotateSecret).
UPDATE server_secret SET fingerprint = $1, since = floor(extract(epoch FROM clock_timestamp())), former = array_remove(former, $1) || ARRAY[fingerprint]
WHERE singleton AND fingerprint = $2
