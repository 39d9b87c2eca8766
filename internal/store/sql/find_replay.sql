-- Finds an idempotency record. $1: its scope. $2: the same scope, computed with each former server secret.
-- A replay acknowledges the effect a second time, so a synchronous standby must have the effect first. A read does not wait
-- for the standby. pg_logical_emit_message turns this read into a commit. The commit follows the effect in the write-ahead
-- log and waits for the standby.
SELECT scope, body, response FROM idempotency
WHERE scope = ANY (array_append($2::bytea[], $1::bytea)) AND expires_at > extract(epoch FROM clock_timestamp())
  AND pg_logical_emit_message(true, 'fairpact', '') IS NOT NULL
