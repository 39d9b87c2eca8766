-- How far a rotation is. $1: the longest that a replay lasts, in seconds. Of the replays that were recorded before the
-- rotation none outlasts replays_until, so those that expire later do not count; some that count were recorded after it.
-- $2: how many rows are counted at most.
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
