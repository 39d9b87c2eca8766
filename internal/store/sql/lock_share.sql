-- An insert share-locks its deal; a phase change locks it exclusively. The lock
-- is a statement of its own: READ COMMITTED gives the next one a snapshot (and
-- clock_timestamp a time) from after the lock was held.
SELECT FROM deals WHERE deal_id = ANY($1::text[]) ORDER BY deal_id FOR SHARE
