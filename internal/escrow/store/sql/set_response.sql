-- Stores the response $2 of the idempotency record with scope $1, unless the record has a response already. Returns the stored
-- response.
UPDATE idempotency SET response = coalesce(response, $2) WHERE scope = $1 RETURNING response
