-- Lifts the timeouts that a role or a database may have, for a session that migrates: a migration takes as long as it
-- takes, the session that holds the lock of the migrations idles meanwhile, and CREATE INDEX CONCURRENTLY that is cut
-- leaves an invalid index. Older servers lack some of them.
SELECT set_config(name, '0', false) FROM pg_settings
WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
