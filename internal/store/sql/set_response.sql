-- Stores a response unless the record has one, and returns the stored response.
UPDATE idempotency SET response = coalesce(response, $2) WHERE scope = $1 RETURNING response
