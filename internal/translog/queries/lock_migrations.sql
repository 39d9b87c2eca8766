SELECT pg_advisory_lock(hashtextextended('translog migrations', 0))
