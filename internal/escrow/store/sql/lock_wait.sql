-- Locks deals as lock.sql does, but waits for a deal that another transaction holds.
SELECT set_config('fairpact.locked', coalesce(string_agg(deal_id, ' '), ''), true)
FROM (SELECT deal_id FROM deals WHERE deal_id = ANY($1::text[]) ORDER BY deal_id FOR NO KEY UPDATE) AS held
