-- Stores a group of commitments of any deals. Runs after lock.sql or lock_wait.sql.
-- Calls: $1 deals, $2 parties, $3 commitments, $4 hints, $8 attested_by (null: no seat key signed).
-- Seals: $9 encrypted texts (null: no seal), $10 hashes of the texts, $11 times of their rounds. Fingerprints of the server secrets
--   that encrypted them: $12. If another secret is in force, the statement stores nothing.
-- Idempotency: $5 scopes (null: no record), $6 bodies, $7 lifetimes in seconds.
-- A hint is a party index: as far as the caller knows, all parties before that party have committed.
-- The last commitment of a deal moves the deal to REVEALING in this same statement.
--
-- Returns for each call, in order:
-- * whether its deal was locked (null: another server secret is in force);
-- * whether its commitment was inserted;
-- * the first party, from the hint on, that has yet to commit. 0 also if the search found none or did not run. Null if this
--   statement moved the deal to REVEALING;
-- * the time of the commitment; null if it was not inserted;
-- * when the round of the deal's seals is due, if this statement moved the deal to REVEALING and the deal has seals.
--
-- held: the deals that are locked and accept commitments now. missing: the first missing party of each held deal.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
secret AS MATERIALIZED (
    SELECT fingerprint, (fingerprint = ALL ($12::bytea[])) IS NOT FALSE AS writes
    FROM (SELECT (SELECT fingerprint FROM server_secret WHERE singleton) AS fingerprint) AS in_force
),
locked AS MATERIALIZED (SELECT string_to_array(current_setting('fairpact.locked', true), ' ') AS deals),
wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::int[], $3::bytea[], $4::int[], $5::bytea[], $6::bytea[], $7::bigint[], $8::text[],
            $9::bytea[], $10::bytea[], $11::bigint[])
        WITH ORDINALITY AS w (deal_id, party, commitment, first, scope, body, lifetime, attested_by, seal, seal_hash, round_time, n)
),
-- OFFSET 0 makes the planner look each deal up by key. With a condition on the phase inside the subquery, the planner may
-- scan all active deals.
held AS MATERIALIZED (
    SELECT d.deal_id, d.parties, acting.parties AS acting, least(acting.first, d.parties - 1) AS first
    FROM (SELECT deal_id, array_agg(party) AS parties, max(first) AS first FROM wanted GROUP BY deal_id) AS acting
    CROSS JOIN clock
    CROSS JOIN LATERAL (SELECT deal_id, parties, phase, commit_deadline FROM deals WHERE deal_id = acting.deal_id OFFSET 0) AS d
    WHERE acting.deal_id = ANY ((SELECT deals FROM locked)::text[]) AND d.phase = 'COMMITTING' AND now < d.commit_deadline AND (SELECT writes FROM secret)
),
inserted AS (
    INSERT INTO commitments (deal_id, party, commitment, committed_at, attested_by)
    SELECT deal_id, party, commitment, now, attested_by FROM wanted JOIN held USING (deal_id), clock
    WHERE party < parties
    ORDER BY deal_id, party
    ON CONFLICT DO NOTHING
    RETURNING deal_id, party, committed_at
),
sealed AS (
    INSERT INTO seals (deal_id, party, hash, sealed, secret, sealed_at, round_time)
    SELECT deal_id, party, seal_hash, seal, (SELECT fingerprint FROM secret), committed_at, round_time
    FROM inserted JOIN wanted USING (deal_id, party)
    WHERE seal IS NOT NULL ORDER BY deal_id, party
    RETURNING deal_id, round_time
),
recorded AS (
    INSERT INTO idempotency (scope, body, expires_at)
    SELECT scope, body, committed_at + lifetime FROM inserted JOIN wanted USING (deal_id, party)
    WHERE scope IS NOT NULL ORDER BY scope
),
-- Looks up one party after another, from the hint on, each by the index. The lookup is a scalar subquery, because the planner
-- may turn EXISTS into a hash of the whole table.
missing AS MATERIALIZED (
    SELECT deal_id, parties, (
        SELECT party FROM (SELECT generate_series(held.first, held.parties - 1) AS party) AS each
        WHERE party <> ALL (held.acting)
          AND (SELECT c.party FROM commitments c WHERE c.deal_id = held.deal_id AND c.party = each.party) IS NULL
        LIMIT 1
    ) AS party
    FROM held
),
complete AS MATERIALIZED (
    SELECT m.deal_id FROM missing m JOIN (SELECT deal_id, count(*) AS n FROM inserted GROUP BY deal_id) AS here USING (deal_id)
    -- $4 is only a hint, so all commitments are counted before the deal advances.
    WHERE m.party IS NULL AND m.parties = here.n + (SELECT count(*) FROM commitments c WHERE c.deal_id = m.deal_id)
),
-- The first seal sets seal_time. During a rolling upgrade, the last commitment may come to the previous release, which knows no seals.
advanced AS (
    UPDATE deals d SET phase = CASE WHEN c.deal_id IS NULL THEN d.phase ELSE 'REVEALING' END,
        commits_closed_at = CASE WHEN c.deal_id IS NULL THEN d.commits_closed_at ELSE now END,
        seal_time = coalesce(d.seal_time, s.round_time)
    FROM held h LEFT JOIN complete c USING (deal_id)
    LEFT JOIN (SELECT deal_id, max(round_time) AS round_time FROM sealed GROUP BY deal_id) AS s USING (deal_id), clock
    WHERE d.deal_id = ANY($1) AND d.deal_id = h.deal_id AND (c.deal_id IS NOT NULL OR s.deal_id IS NOT NULL AND d.seal_time IS NULL)
    RETURNING d.deal_id, d.phase, d.seal_time
)
SELECT CASE WHEN (SELECT writes FROM secret) THEN w.deal_id = ANY((SELECT deals FROM locked)::text[]) END, i.party IS NOT NULL,
       CASE WHEN a.deal_id IS NULL THEN coalesce(m.party, 0) END, i.committed_at, a.seal_time
FROM wanted w
LEFT JOIN inserted i ON i.deal_id = w.deal_id AND i.party = w.party
LEFT JOIN missing m ON m.deal_id = w.deal_id
LEFT JOIN advanced a ON a.deal_id = w.deal_id AND a.phase = 'REVEALING'
ORDER BY w.n
