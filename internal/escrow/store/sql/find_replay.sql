-- Finds an idempotency record. $1: its scope. $2: the same scope, computed with each other server secret of the process.
-- $3: the most bytes of the response to return; for a larger one it is null. The last column is its size.
-- A replay acknowledges the effect of the first call again, so a synchronous standby must have that effect first. A read alone
-- does not wait for the standby. pg_logical_emit_message makes the transaction of this read write a commit record. The commit
-- record follows the effect in the write-ahead log, and the commit waits until the standby has this record.
SELECT scope, body, CASE WHEN octet_length(response) <= $3::bigint THEN response END, octet_length(response) FROM idempotency
WHERE scope = ANY (array_append($2::bytea[], $1::bytea)) AND expires_at > extract(epoch FROM clock_timestamp())
  AND pg_logical_emit_message(true, 'fairpact', '') IS NOT NULL
