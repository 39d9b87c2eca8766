-- Reads the seals of the deal $1 that are stored, each with its party and encrypted, in party order.
SELECT party, sealed FROM seals WHERE deal_id = $1 AND sealed IS NOT NULL ORDER BY party
