-- Locks the deals of a group, in the order of their ids, and notes in the
-- transaction which it got: the next statement decides on those alone. The lock
-- is a statement of its own, because READ COMMITTED then gives the next one a
-- snapshot and a time from after it was held. Deals that another transaction
-- holds are skipped (lock_wait.sql waits).
SELECT set_config('fairpact.locked', coalesce(string_agg(deal_id, ' '), ''), true)
FROM (SELECT deal_id FROM deals WHERE deal_id = ANY($1::text[]) ORDER BY deal_id FOR NO KEY UPDATE SKIP LOCKED) AS held
