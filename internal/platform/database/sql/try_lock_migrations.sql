SELECT pg_try_advisory_lock(hashtextextended('fairpact migrations', 0))
