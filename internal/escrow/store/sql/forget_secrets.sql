-- Ends a rotation: records that stored data no longer needs a former secret. $1: fingerprint of the secret in force. Changes
-- nothing if another secret is in force, if inputs are left to reseal, or if there is no rotation to end.
UPDATE server_secret SET former = '{}'
WHERE singleton AND fingerprint = $1 AND former <> '{}' AND (
    SELECT deal_id FROM reveals WHERE secret = ANY (ARRAY(SELECT unnest(former) FROM server_secret WHERE singleton)) AND sealed IS NOT NULL LIMIT 1
) IS NULL
