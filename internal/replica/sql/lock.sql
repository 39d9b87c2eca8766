SELECT pg_advisory_xact_lock(hashtextextended('fairpact replicas', 0))
