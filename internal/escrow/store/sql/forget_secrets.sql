-- Ends a rotation: records that stored data no longer needs a former secret. $1: fingerprint of the secret in force. Changes
-- nothing if another secret is in force, if inputs are left to reseal, or if there is no rotation to end.
UPDATE server_secret SET former = '{}'
WHERE singleton AND fingerprint = $1 AND former <> '{}' AND (
    SELECT r.deal_id FROM unnest((SELECT former FROM server_secret WHERE singleton)) AS f
    CROSS JOIN LATERAL (
        (SELECT deal_id FROM reveals WHERE secret = f AND sealed IS NOT NULL ORDER BY deal_id, party LIMIT 1)
        UNION ALL
        (SELECT deal_id FROM seals WHERE secret = f AND sealed IS NOT NULL ORDER BY deal_id, party LIMIT 1)
    ) AS r LIMIT 1
) IS NULL
