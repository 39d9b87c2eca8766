SELECT set_config('statement_timeout', '30s', false),
       set_config('lock_timeout', '10s', false),
       -- A process that vanishes while it holds a lock loses it.
       set_config('idle_in_transaction_session_timeout', '10s', false),
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
                  false),
       -- Who waits for a lock in one statement decides in the next by what its last
       -- holder committed.
       set_config('default_transaction_isolation', 'read committed', false),
       -- Every read is by key. A plan cached while a table was small would scan it
       -- whole for as long as the session lives.
       set_config('enable_seqscan', 'off', false),
       -- With enable_seqscan off the planner adds a cost of 1e10 to each scan of a
       -- table that has no other path. That is above jit_above_cost, so Postgres would
       -- compile a statement that reads a few rows: 0.1 to 1.3 s instead of 1 ms.
       set_config('jit', 'off', false)
