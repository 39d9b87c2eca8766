-- Turns off all timeouts in a session of `fairpactctl migrate`. A migration may take long, and meanwhile the session that holds
-- the migration lock is idle. An interrupted CREATE INDEX CONCURRENTLY would leave an invalid index. The query reads
-- pg_settings, because older servers lack some of these settings.
SELECT set_config(name, '0', false) FROM pg_settings
WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
