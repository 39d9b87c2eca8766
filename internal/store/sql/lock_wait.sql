-- Locks like lock.sql, but waits for a transaction that holds a deal.
SELECT set_config('fairpact.locked', coalesce(string_agg(deal_id, ' '), ''), true)
FROM (SELECT deal_id FROM deals WHERE deal_id = ANY($1::text[]) ORDER BY deal_id FOR NO KEY UPDATE) AS held
