SELECT pg_try_advisory_lock(hashtextextended('fairpact witnesses', 0))
