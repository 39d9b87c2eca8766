-- Sets what the session needs, because the server's defaults may differ. Returns a text that identifies the server and the
-- database. The text changes when the server restarts, and is different for another server or database.
SELECT pg_postmaster_start_time()::text || ' ' || coalesce(inet_server_addr()::text, '') || ' ' || current_database()
FROM (SELECT
       set_config('statement_timeout', '30s', false),
       set_config('lock_timeout', '10s', false),
       -- If a process vanishes during a transaction, the server ends the session and so
       -- releases the locks.
       set_config('idle_in_transaction_session_timeout', '10s', false),
       -- With off, other sessions could see a commit before it is durable on this server.
       -- Every other value is kept.
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
                  false),
       -- After a statement has waited for a lock, the next statement must see what the last
       -- holder of the lock committed.
       set_config('default_transaction_isolation', 'read committed', false),
       -- Every read is by key, so a session makes one generic plan for each statement and
       -- keeps this plan. For a table that is still small, Postgres would plan a sequential
       -- scan, and the session would keep this plan when the table has grown. So sequential
       -- scans are off.
       set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('enable_seqscan', 'off', false),
       -- With sequential scans off, a plan that still needs a scan has a very high cost.
       -- Postgres would compile such a plan, which takes hundreds of milliseconds in each call.
       set_config('jit', 'off', false)
) AS settings
