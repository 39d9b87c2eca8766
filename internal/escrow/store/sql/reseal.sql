-- Replaces stored inputs by the same inputs, encrypted under the server secret in force (resealed), and records the progress of
-- the rotation.
-- $1 deals, $2 parties, $3 inputs as read (an input that has changed since then is not replaced), $4 resealed inputs.
-- $5: fingerprint of the secret that encrypted $4. If another secret is in force, the statement does nothing.
-- $6 deal and $7 party of the last input of the batch (null: no input is left).
WITH noted AS (
    UPDATE server_secret SET resealed_deal = $6::text, resealed_party = $7::int WHERE singleton AND fingerprint = $5 RETURNING fingerprint
)
UPDATE reveals r SET sealed = w.fresh
FROM noted, unnest($1::text[], $2::int[], $3::bytea[], $4::bytea[]) AS w (deal_id, party, sealed, fresh)
WHERE r.deal_id = ANY ($1) AND r.deal_id = w.deal_id AND r.party = w.party AND r.sealed = w.sealed
