-- A replay acknowledges the effect again. The message makes the read a commit of its own, behind the effect in
-- the write-ahead log: it waits for the synchronous standby, which the effect's commit may not have done.
SELECT body, response FROM idempotency
WHERE scope = $1 AND expires_at > extract(epoch FROM clock_timestamp())
  AND pg_logical_emit_message(true, 'fairpact', '') IS NOT NULL
