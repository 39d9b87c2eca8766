-- Makes the settings of a session, whatever the server's defaults. Returns a text that identifies the server: it is different
-- after a restart and on another server.
SELECT pg_postmaster_start_time()::text || ' ' || coalesce(inet_server_addr()::text, '') || ' ' || current_database()
FROM (SELECT
       set_config('statement_timeout', '30s', false),
       set_config('lock_timeout', '10s', false),
       -- Ends the transaction, and so the locks, of a process that vanished.
       set_config('idle_in_transaction_session_timeout', '10s', false),
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
                  false),
       -- A transaction that waits for a lock in one statement must see in the next one
       -- what the last holder of the lock committed.
       set_config('default_transaction_isolation', 'read committed', false),
       -- Every read is by key, so that one plan for each session suffices. Sequential
       -- scans are off because a plan made for a small table would scan the table for as
       -- long as the session lives.
       set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('enable_seqscan', 'off', false),
       -- With sequential scans off, a plan that needs one has so high a cost that a stock
       -- server compiles it, which takes hundreds of milliseconds a call.
       set_config('jit', 'off', false)
) AS settings
