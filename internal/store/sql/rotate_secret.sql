-- Puts the server secret with fingerprint $1 in force and makes $2, until now in force, a former secret. Does nothing if $2 is
-- not in force. Runs in the transaction that has locked the table idempotency (Store.RotateSecret).
UPDATE server_secret SET fingerprint = $1, since = floor(extract(epoch FROM clock_timestamp())),
    former = array_remove(coalesce(former, '{}'), $1) || ARRAY[fingerprint], resealed_deal = '', resealed_party = -1
WHERE singleton AND fingerprint = $2
