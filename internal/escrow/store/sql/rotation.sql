-- Reads the progress of a rotation. $1: the longest lifetime of an idempotency record, in seconds. $2: the maximum of each count.
-- A record from before the rotation expires at most $1 seconds after the rotation, so records that expire later are not
-- counted. The count may include records from after the rotation. The inputs and seals are read in the order
-- of the indexes reveals_secret and seals_secret, so that the planner stops early.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
secret AS MATERIALIZED (SELECT fingerprint, former, since FROM server_secret WHERE singleton)
SELECT fingerprint, former, since, (SELECT now FROM clock),
       (SELECT count(*) FROM (
           SELECT FROM idempotency WHERE expires_at > (SELECT now FROM clock) AND expires_at <= (SELECT since FROM secret) + $1::bigint LIMIT $2
       ) AS replays),
       (SELECT count(*) FROM (
           SELECT FROM unnest((SELECT former FROM secret)) AS f
           CROSS JOIN LATERAL (
               (SELECT FROM reveals WHERE secret = f AND sealed IS NOT NULL ORDER BY deal_id, party LIMIT $2)
               UNION ALL
               (SELECT FROM seals WHERE secret = f AND sealed IS NOT NULL ORDER BY deal_id, party LIMIT $2)
           ) AS r LIMIT $2
       ) AS inputs)
FROM secret
