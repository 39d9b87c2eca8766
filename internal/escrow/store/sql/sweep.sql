-- Deletes at most 10,000 expired idempotency records, because the deletion of a large backlog would exceed the statement timeout.
DELETE FROM idempotency WHERE scope = ANY(ARRAY(
    SELECT scope FROM idempotency WHERE expires_at <= (SELECT extract(epoch FROM clock_timestamp())::bigint) ORDER BY expires_at LIMIT 10000
))
