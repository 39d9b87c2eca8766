-- Locks the deals of a group in the order of their ids, and skips deals that another transaction holds (lock_wait.sql waits
-- for them). The setting fairpact.locked passes the ids of the locked deals to the next statement of the transaction.
-- The lock is a separate statement. Under READ COMMITTED, the next statement then takes its snapshot and reads the clock after the
-- lock.
SELECT set_config('fairpact.locked', coalesce(string_agg(deal_id, ' '), ''), true)
FROM (SELECT deal_id FROM deals WHERE deal_id = ANY($1::text[]) ORDER BY deal_id FOR NO KEY UPDATE SKIP LOCKED) AS held
