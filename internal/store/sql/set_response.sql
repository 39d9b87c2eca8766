-- Stores a response unless there is one, and returns the stored one.
UPDATE idempotency SET response = coalesce(response, $2) WHERE scope = $1 RETURNING response
