-- Reads the progress of a rotation. $1: the longest lifetime of an idempotency record, in seconds. $2: the maximum of each count.
-- A record from before the rotation expires at most $1 seconds after the rotation, so records that expire later are not
-- counted. The count may include records from after the rotation.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
secret AS MATERIALIZED (SELECT fingerprint, former, since, resealed_deal, resealed_party FROM server_secret WHERE singleton)
SELECT fingerprint, former, since, resealed_deal, coalesce(resealed_party, -1), (SELECT now FROM clock),
       (SELECT count(*) FROM (
           SELECT FROM idempotency WHERE expires_at > (SELECT now FROM clock) AND expires_at <= (SELECT since FROM secret) + $1::bigint LIMIT $2
       ) AS replays),
       (SELECT count(*) FROM (
           SELECT FROM reveals WHERE (deal_id, party) > ((SELECT resealed_deal FROM secret), (SELECT resealed_party FROM secret)) AND sealed IS NOT NULL LIMIT $2
       ) AS inputs)
FROM secret
