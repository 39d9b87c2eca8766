-- Turns off all timeouts in the session of a migration. A migration may take long, and the session with the migration lock is
-- idle meanwhile. An interrupted CREATE INDEX CONCURRENTLY would leave an invalid index. The names come from pg_settings,
-- because older servers lack some of them.
SELECT set_config(name, '0', false) FROM pg_settings
WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
