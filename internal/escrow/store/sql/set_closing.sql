-- Stores the leaf index $2 of the closing of the deal $1, unless one is stored.
UPDATE deals SET closing_leaf = $2 WHERE deal_id = $1 AND closing_leaf IS NULL
