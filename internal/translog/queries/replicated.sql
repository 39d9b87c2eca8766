-- Makes the reads of its transaction a commit of their own, behind what they read in the write-ahead log: it waits for the
-- synchronous standby, for which the commit of what was read may not have waited.
SELECT pg_logical_emit_message(true, 'fairpact', '')
