-- Seconds for which the oldest commit in this database has waited for a synchronous standby. A role without pg_monitor sees
-- only the waits of its own sessions.
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - query_start)), 0)::float8
FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep'
