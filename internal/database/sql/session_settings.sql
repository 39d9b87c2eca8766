-- The settings of a session, whatever the server's defaults. The answer tells this server from any other and from
-- itself before a restart.
SELECT pg_postmaster_start_time()::text || ' ' || coalesce(inet_server_addr()::text, '') || ' ' || current_database()
FROM (SELECT
       set_config('statement_timeout', '30s', false),
       set_config('lock_timeout', '10s', false),
       -- A process that vanishes while it holds a lock loses it.
       set_config('idle_in_transaction_session_timeout', '10s', false),
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
                  false),
       -- Who waits for a lock in one statement decides in the next by what its last
       -- holder committed.
       set_config('default_transaction_isolation', 'read committed', false),
       -- Every read is by key, so a statement is planned once in a session. A plan made
       -- while a table was small would scan it whole for as long as the session lives:
       -- hence no sequential scans.
       set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('enable_seqscan', 'off', false),
       -- Without sequential scans a plan that scans even a tiny table is priced so high
       -- that a stock server compiles it, for hundreds of milliseconds a call.
       set_config('jit', 'off', false)
) AS settings
