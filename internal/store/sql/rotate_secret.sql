-- Puts another secret in force; the one before it becomes a former one. $1 the fingerprint, $2 the one before it: where
-- another one is in force by now nothing is done. In the transaction that holds idempotency (Store.RotateSecret).
UPDATE server_secret SET fingerprint = $1, since = floor(extract(epoch FROM clock_timestamp())),
    former = array_remove(coalesce(former, '{}'), $1) || ARRAY[fingerprint], resealed_deal = '', resealed_party = -1
WHERE singleton AND fingerprint = $2
