SELECT pg_advisory_lock(hashtextextended('fairpact migrations', 0))
