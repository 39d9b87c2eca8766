-- Changes the settings of the session, whatever the server's defaults. Returns a text that identifies the server. The text
-- differs after a restart and on another server.
SELECT pg_postmaster_start_time()::text || ' ' || coalesce(inet_server_addr()::text, '') || ' ' || current_database()
FROM (SELECT
       set_config('statement_timeout', '30s', false),
       set_config('lock_timeout', '10s', false),
       -- Ends the transaction of a process that vanished, and thereby releases its locks.
       set_config('idle_in_transaction_session_timeout', '10s', false),
       -- Every value but off makes a commit durable on this server before others see it.
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
                  false),
       -- After a statement has waited for a lock, the next statement must see what the last
       -- holder of the lock committed.
       set_config('default_transaction_isolation', 'read committed', false),
       -- Every read is by key, so a session keeps one generic plan. A plan made while a
       -- table is small would scan it, even after it has grown. So sequential scans are
       -- off.
       set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('enable_seqscan', 'off', false),
       -- With sequential scans off, a plan that still needs a scan has a very high cost.
       -- Postgres would compile such a plan, which takes hundreds of milliseconds a call.
       set_config('jit', 'off', false)
) AS settings
