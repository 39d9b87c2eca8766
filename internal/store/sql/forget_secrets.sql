-- Ends a rotation: stored data no longer needs a former secret. $1 the secret in force.
UPDATE server_secret SET former = '{}' WHERE singleton AND fingerprint = $1 AND former <> '{}' AND resealed_deal IS NULL
