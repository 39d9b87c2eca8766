DELETE FROM idempotency WHERE scope = $1 AND expires_at <= extract(epoch FROM clock_timestamp())
