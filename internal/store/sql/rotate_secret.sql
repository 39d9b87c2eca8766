-- Puts another server secret in force; the one until now becomes a former one. $1 the new fingerprint, $2 the one until now: if
-- another one is in force, nothing is done. Runs in the transaction that has locked idempotency (Store.RotateSecret).
UPDATE server_secret SET fingerprint = $1, since = floor(extract(epoch FROM clock_timestamp())),
    former = array_remove(coalesce(former, '{}'), $1) || ARRAY[fingerprint], resealed_deal = '', resealed_party = -1
WHERE singleton AND fingerprint = $2
