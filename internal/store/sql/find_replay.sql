-- $1 the scope, $2 the same under former server secrets.
-- A replay acknowledges the effect again. The message makes the read a commit of its own, behind the effect in
-- the write-ahead log: it waits for the synchronous standby, which the effect's commit may not have done.
SELECT scope, body, response FROM idempotency
WHERE scope = ANY (array_append($2::bytea[], $1::bytea)) AND expires_at > extract(epoch FROM clock_timestamp())
  AND pg_logical_emit_message(true, 'fairpact', '') IS NOT NULL
