-- Stores a group of commitments of any deals. Runs after lock.sql or lock_wait.sql.
-- Calls: $1 deals, $2 parties, $3 commitments, $4 hints, $8 attested_by (null: no seat key signed).
-- Idempotency: $5 scopes (null: no record), $6 bodies, $7 lifetimes in seconds.
-- A hint is a party index: as far as the caller knows, all parties before that party have committed.
-- The last commitment of a deal moves the deal to REVEALING in this same statement.
--
-- Returns for each call, in order:
-- * whether its deal was locked;
-- * whether its commitment was inserted;
-- * the first party, from the hint on, that has yet to commit. 0 also if the search found none or did not run. Null if this
--   statement moved the deal to REVEALING.
--
-- held: the deals that are locked and accept commitments now. missing: the first missing party of each held deal.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
locked AS MATERIALIZED (SELECT string_to_array(current_setting('fairpact.locked', true), ' ') AS deals),
wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::int[], $3::bytea[], $4::int[], $5::bytea[], $6::bytea[], $7::bigint[], $8::text[])
        WITH ORDINALITY AS w (deal_id, party, commitment, first, scope, body, lifetime, attested_by, n)
),
-- OFFSET 0 makes the planner look each deal up by key. With a condition on the phase inside the subquery, the planner may
-- scan all active deals.
held AS MATERIALIZED (
    SELECT d.deal_id, d.parties, acting.parties AS acting, least(acting.first, d.parties - 1) AS first
    FROM (SELECT deal_id, array_agg(party) AS parties, max(first) AS first FROM wanted GROUP BY deal_id) AS acting
    CROSS JOIN clock
    CROSS JOIN LATERAL (SELECT deal_id, parties, phase, commit_deadline FROM deals WHERE deal_id = acting.deal_id OFFSET 0) AS d
    WHERE acting.deal_id = ANY ((SELECT deals FROM locked)::text[]) AND d.phase = 'COMMITTING' AND now < d.commit_deadline
),
inserted AS (
    INSERT INTO commitments (deal_id, party, commitment, committed_at, attested_by)
    SELECT deal_id, party, commitment, now, attested_by FROM wanted JOIN held USING (deal_id), clock
    WHERE party < parties
    ORDER BY deal_id, party
    ON CONFLICT DO NOTHING
    RETURNING deal_id, party, committed_at
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
advanced AS (
    UPDATE deals d SET phase = 'REVEALING', commits_closed_at = now
    FROM missing m JOIN (SELECT deal_id, count(*) AS n FROM inserted GROUP BY deal_id) AS here USING (deal_id), clock
    WHERE d.deal_id = ANY($1) AND d.deal_id = m.deal_id AND m.party IS NULL
      -- $4 is only a hint, so all commitments are counted before the deal advances.
      AND m.parties = here.n + (SELECT count(*) FROM commitments c WHERE c.deal_id = m.deal_id)
    RETURNING d.deal_id
)
SELECT w.deal_id = ANY((SELECT deals FROM locked)::text[]), i.party IS NOT NULL,
       CASE WHEN a.deal_id IS NULL THEN coalesce(m.party, 0) END
FROM wanted w
LEFT JOIN inserted i ON i.deal_id = w.deal_id AND i.party = w.party
LEFT JOIN missing m ON m.deal_id = w.deal_id
LEFT JOIN advanced a ON a.deal_id = w.deal_id
ORDER BY w.n
