-- The first stored response wins and is what everyone answers.
UPDATE idempotency SET response = coalesce(response, $2) WHERE scope = $1 RETURNING response
