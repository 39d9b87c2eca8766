-- In portions, so that a backlog never outgrows the statement's time.
DELETE FROM idempotency WHERE scope = ANY(ARRAY(
    SELECT scope FROM idempotency WHERE expires_at <= (SELECT extract(epoch FROM clock_timestamp())::bigint) ORDER BY expires_at LIMIT 10000
))
