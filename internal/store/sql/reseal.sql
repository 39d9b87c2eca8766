-- Replaces inputs by the same ones resealed, unless they have changed, and notes how far that is. $1 deals, $2 parties,
-- $3 sealed as read, $4 resealed; $5 the secret of the latter: where another one is in force nothing is done; $6 deal
-- and $7 party of the last input that was looked at (null: there was none left).
WITH noted AS (
    UPDATE server_secret SET resealed_deal = $6::text, resealed_party = $7::int WHERE singleton AND fingerprint = $5 RETURNING fingerprint
)
UPDATE reveals r SET sealed = w.fresh
FROM noted, unnest($1::text[], $2::int[], $3::bytea[], $4::bytea[]) AS w (deal_id, party, sealed, fresh)
WHERE r.deal_id = ANY ($1) AND r.deal_id = w.deal_id AND r.party = w.party AND r.sealed = w.sealed
