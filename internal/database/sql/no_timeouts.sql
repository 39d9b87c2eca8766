-- Removes, for a session that migrates, the timeouts that a role or a database may set. A migration may take long, and the
-- session with the migration lock idles meanwhile. An interrupted CREATE INDEX CONCURRENTLY leaves an invalid index. The names
-- come from pg_settings, because older servers lack some of the settings.
SELECT set_config(name, '0', false) FROM pg_settings
WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
