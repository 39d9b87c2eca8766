-- Ends a rotation: nothing stored needs a former secret. $1 the secret in force.
UPDATE server_secret SET former = '{}' WHERE singleton AND fingerprint = $1 AND former <> '{}' AND resealed_deal IS NULL
