-- Puts the server secret $1 in force and makes the secret $2 a former one. Does nothing if $2 is not in force. Both are
-- fingerprints. Runs in the transaction that has locked the table idempotency (Store.RotateSecret).
UPDATE server_secret SET fingerprint = $1, since = floor(extract(epoch FROM clock_timestamp())),
    former = array_remove(coalesce(former, '{}'), $1) || ARRAY[fingerprint], resealed_deal = '', resealed_party = -1
WHERE singleton AND fingerprint = $2
