-- Removes the timeouts that a role or a database may set, for a session that migrates. A migration may take long, the session
-- with the migration lock idles meanwhile, and an interrupted CREATE INDEX CONCURRENTLY leaves an invalid index. Reads the
-- names from pg_settings, because older servers lack some of them.
SELECT set_config(name, '0', false) FROM pg_settings
WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
