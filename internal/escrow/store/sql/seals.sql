-- Reads the seals of the parties $2 to $3 of the deal $1.
SELECT party, state, hash, sealed_at FROM seals WHERE deal_id = $1 AND party BETWEEN $2 AND $3 ORDER BY party
