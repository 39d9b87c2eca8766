-- Finds an idempotency record. $1 the scope, $2 the same scope, computed with each former server secret.
-- A replay acknowledges the effect a second time, so a synchronous standby must have the effect before the replay is
-- answered. A read does not wait for the standby. pg_logical_emit_message turns this read into a commit, which follows the
-- effect in the write-ahead log and waits.
SELECT scope, body, response FROM idempotency
WHERE scope = ANY (array_append($2::bytea[], $1::bytea)) AND expires_at > extract(epoch FROM clock_timestamp())
  AND pg_logical_emit_message(true, 'fairpact', '') IS NOT NULL
