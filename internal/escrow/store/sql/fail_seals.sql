-- Marks the seals of the parties $2 of the deal $1 as failed. A seal that was opened or is no longer needed stays as it is.
UPDATE seals SET state = 'failed' WHERE deal_id = $1 AND party = ANY ($2::int[]) AND state = 'sealed'
