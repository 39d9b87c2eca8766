-- Replaces stored inputs and seals by the same ones, encrypted under the server secret in force (resealed).
-- $1 deals, $2 parties, $3 inputs as read (an input that has changed since then is not replaced), $4 resealed inputs (null: the
-- input cannot be decrypted, and is left as it is).
-- $6: which of them are seals.
-- $5: fingerprint of the secret that encrypted $4. If another secret is in force, the statement does nothing.
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::int[], $3::bytea[], $4::bytea[], $6::boolean[]) AS w (deal_id, party, sealed, fresh, seal)
    CROSS JOIN (SELECT fingerprint FROM server_secret WHERE singleton AND fingerprint = $5 FOR SHARE) AS s
),
seals AS (
    UPDATE seals r SET sealed = coalesce(w.fresh, r.sealed), secret = CASE WHEN w.fresh IS NOT NULL THEN w.fingerprint END
    FROM wanted w WHERE w.seal AND r.deal_id = ANY ($1) AND r.deal_id = w.deal_id AND r.party = w.party AND r.sealed IS NOT DISTINCT FROM w.sealed
)
UPDATE reveals r SET sealed = coalesce(w.fresh, r.sealed), secret = CASE WHEN w.fresh IS NOT NULL THEN w.fingerprint END
FROM wanted w
WHERE NOT w.seal AND r.deal_id = ANY ($1) AND r.deal_id = w.deal_id AND r.party = w.party AND r.sealed IS NOT DISTINCT FROM w.sealed -- with = the planner may scan reveals_secret
