DELETE FROM idempotency WHERE expires_at <= extract(epoch FROM clock_timestamp())
