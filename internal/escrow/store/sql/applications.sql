SELECT DISTINCT application_name FROM pg_stat_activity
WHERE datname = current_database() AND application_name <> ''
ORDER BY application_name
