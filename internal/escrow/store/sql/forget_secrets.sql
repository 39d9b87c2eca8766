-- Ends a rotation: records that stored data no longer needs a former secret. $1: fingerprint of the secret in force. Changes
-- nothing if another secret is in force, if inputs are left to reseal, or if there is no rotation to end.
UPDATE server_secret SET former = '{}' WHERE singleton AND fingerprint = $1 AND former <> '{}' AND resealed_deal IS NULL
