-- Stores a group of commitments of any deals. Runs after lock.sql. $1 deals, $2 parties, $3 commitments, $4 for each call the
-- first party that the caller does not know to have committed; idempotency: $5 scopes (null: no record), $6 bodies,
-- $7 lifetimes; $8 attested_by (null: an invite token committed).
-- Returns for each call: whether its deal was locked, whether its commitment was inserted, and the first party that has yet
-- to commit (null: none). The last commitment of a deal moves it to REVEALING in this same statement.
--
-- held: the deals that lock.sql locked and that accept commitments now. missing: their first missing party.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
locked AS MATERIALIZED (SELECT string_to_array(current_setting('fairpact.locked', true), ' ') AS deals),
wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::int[], $3::bytea[], $4::int[], $5::bytea[], $6::bytea[], $7::bigint[], $8::text[])
        WITH ORDINALITY AS w (deal_id, party, commitment, first, scope, body, lifetime, attested_by, n)
),
-- OFFSET 0 makes the planner look a deal up by key. With the phase in the subquery it may scan all active deals.
held AS MATERIALIZED (
    SELECT d.deal_id, d.parties, acting.parties AS acting, least(acting.first, d.parties - 1) AS first
    FROM unnest((SELECT deals FROM locked)) AS l (deal_id)
    CROSS JOIN clock
    CROSS JOIN LATERAL (SELECT deal_id, parties, phase, commit_deadline FROM deals WHERE deal_id = l.deal_id OFFSET 0) AS d
    CROSS JOIN LATERAL (SELECT array_agg(w.party) AS parties, max(w.first) AS first FROM wanted w WHERE w.deal_id = l.deal_id) AS acting
    WHERE d.phase = 'COMMITTING' AND now < d.commit_deadline
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
-- Walks from party to party, with one index lookup each. The lookup is a scalar subquery, because EXISTS may become a hash
-- of the whole table.
missing AS MATERIALIZED (
    SELECT deal_id, parties, (
        WITH RECURSIVE walk (party, acted) AS (
            SELECT first, first = ANY(acting) OR (SELECT c.party FROM commitments c WHERE c.deal_id = held.deal_id AND c.party = first) IS NOT NULL
            UNION ALL
            SELECT walk.party + 1, walk.party + 1 = ANY(acting)
                OR (SELECT c.party FROM commitments c WHERE c.deal_id = held.deal_id AND c.party = walk.party + 1) IS NOT NULL
            FROM walk WHERE acted AND walk.party + 1 < parties
        )
        SELECT party FROM walk WHERE NOT acted
    ) AS party
    FROM held
),
advanced AS (
    UPDATE deals d SET phase = 'REVEALING', commits_closed_at = now FROM missing m, clock
    WHERE d.deal_id = ANY($1) AND d.deal_id = m.deal_id AND m.party IS NULL
      -- Only if this statement stored the last one: otherwise catch_up.sql advances the deal, with an earlier time.
      AND (SELECT count(*) FROM inserted i WHERE i.deal_id = m.deal_id) > 0
      -- $4 is only a hint, so all commitments are counted before the deal advances.
      AND m.parties = (SELECT count(*) FROM commitments c WHERE c.deal_id = m.deal_id) + (SELECT count(*) FROM inserted i WHERE i.deal_id = m.deal_id)
    RETURNING d.deal_id
)
SELECT w.deal_id = ANY((SELECT deals FROM locked)::text[]), i.party IS NOT NULL,
       CASE WHEN a.deal_id IS NULL THEN coalesce(m.party, 0) END
FROM wanted w
LEFT JOIN inserted i ON i.deal_id = w.deal_id AND i.party = w.party
LEFT JOIN missing m ON m.deal_id = w.deal_id
LEFT JOIN advanced a ON a.deal_id = w.deal_id
ORDER BY w.n
