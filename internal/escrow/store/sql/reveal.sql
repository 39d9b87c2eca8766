-- Stores a group of reveals of any deals. Runs after lock.sql or lock_wait.sql.
-- Calls: $1 deals, $2 parties, $3 sealed inputs, $4 the commitments that they open, $5 hints.
-- Idempotency: $6 scopes (null: no record), $7 bodies, $8 lifetimes in seconds.
-- $9: maximum bytes of inputs to return. $11: whether each reveal comes from a seal, which counts also after the deadline. $12: maximum for one deal.
-- Fingerprints of the server secrets that the calls used: $10. If another secret is in force, the statement stores nothing.
-- A hint is a party index: as far as the caller knows, all parties before that party have revealed.
--
-- The statement does three things in one round trip. The names in brackets are those of its CTEs:
-- 1. It inserts each reveal whose deal is locked and accepts reveals now, and whose commitment is the stored one (held, inserted).
-- 2. It looks for a missing party (missing, complete). If there is none, it closes the reveals of a random.v1 deal (closed).
--    Such a deal then waits for its beacon round.
-- 3. For any other deal, the caller of the last reveal computes the result from all inputs. To save this caller a round trip,
--    the answer holds the snapshot that snapshot.sql would return after this transaction, inputs included. A CTE does not see
--    rows that another CTE of its statement inserts. So the snapshot unites the stored inputs and the rows of `inserted`.
--
-- Returns for each call, in order:
-- * whether its deal was locked (null: another server secret is in force);
-- * whether the reveal was inserted;
-- * the first party, from the hint on, that has yet to reveal. 0 also if the search found none or did not run. Null if all
--   parties have revealed;
-- * the snapshot: the time, the time of the last reveal, commits_closed_at, whether a reveal came from a seal, and by party the commitments, attested_by and
--   sealed inputs. One call of each complete deal without a beacon gets the snapshot. All other calls get nulls. The
--   statement adds up the bytes of inputs from deal to deal. Once the sum exceeds $9, the calls of the remaining deals also
--   get nulls, and the caller of the last reveal of each such deal reads the snapshot with snapshot.sql. So does the caller of a
--   deal with more than $12 bytes of inputs.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
secret AS MATERIALIZED (
    SELECT fingerprint, (fingerprint = ALL ($10::bytea[])) IS NOT FALSE AS writes
    FROM (SELECT (SELECT fingerprint FROM server_secret WHERE singleton) AS fingerprint) AS in_force
),
locked AS MATERIALIZED (SELECT string_to_array(current_setting('fairpact.locked', true), ' ') AS deals),
wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::int[], $3::bytea[], $4::bytea[], $5::int[], $6::bytea[], $7::bytea[], $8::bigint[], $11::boolean[])
        WITH ORDINALITY AS w (deal_id, party, sealed, commitment, first, scope, body, lifetime, by_seal, n)
),
-- OFFSET 0 makes the planner look each deal up by key. With a condition on the phase inside the subquery, the planner may
-- scan all active deals.
held AS MATERIALIZED (
    SELECT d.deal_id, d.parties, now < d.reveal_deadline AS in_time, acting.parties AS acting, least(acting.first, d.parties - 1) AS first
    FROM (SELECT deal_id, array_agg(party) AS parties, max(first) AS first FROM wanted GROUP BY deal_id) AS acting
    CROSS JOIN clock
    CROSS JOIN LATERAL (SELECT deal_id, parties, phase, reveal_deadline FROM deals WHERE deal_id = acting.deal_id OFFSET 0) AS d
    WHERE acting.deal_id = ANY ((SELECT deals FROM locked)::text[]) AND d.phase = 'REVEALING' AND (SELECT writes FROM secret)
),
inserted AS (
    INSERT INTO reveals (deal_id, party, sealed, revealed_at, secret)
    SELECT deal_id, party, sealed, now, (SELECT fingerprint FROM secret) FROM wanted w JOIN held USING (deal_id), clock
    WHERE commitment = (SELECT c.commitment FROM commitments c WHERE c.deal_id = w.deal_id AND c.party = w.party)
      AND (in_time OR by_seal)
    ORDER BY deal_id, party
    ON CONFLICT DO NOTHING
    RETURNING deal_id, party, revealed_at, sealed
),
-- A seal is not needed once its party has revealed. The previous release leaves the seal of a party that reveals by hand: then the
-- reveal that comes from the seal is not inserted. A failed seal is kept.
unsealed AS (
    UPDATE seals s SET sealed = NULL, secret = NULL, state = CASE WHEN w.by_seal AND i.party IS NOT NULL THEN 'opened' ELSE 'unused' END
    FROM wanted w LEFT JOIN inserted i USING (deal_id, party)
    WHERE s.deal_id = ANY($1) AND s.deal_id = w.deal_id AND s.party = w.party AND s.state = 'sealed'
      AND (i.party IS NOT NULL OR w.by_seal AND (SELECT r.party FROM reveals r WHERE r.deal_id = w.deal_id AND r.party = w.party) IS NOT NULL)
),
recorded AS (
    INSERT INTO idempotency (scope, body, expires_at)
    SELECT scope, body, revealed_at + lifetime FROM inserted JOIN wanted USING (deal_id, party)
    WHERE scope IS NOT NULL ORDER BY scope
),
-- Looks for a missing party as commit.sql does.
missing AS MATERIALIZED (
    SELECT deal_id, parties, (
        SELECT party FROM (SELECT generate_series(held.first, held.parties - 1) AS party) AS each
        WHERE party <> ALL (held.acting)
          AND (SELECT r.party FROM reveals r WHERE r.deal_id = held.deal_id AND r.party = each.party) IS NULL
        LIMIT 1
    ) AS party
    FROM held
),
-- The deals in which all parties have revealed.
-- n: the call that gets the snapshot.
-- total: bytes of inputs of this deal and the deals before it.
-- before: reveals stored before this statement. here: reveals that this statement stores.
complete AS MATERIALIZED (
    SELECT d.*, now, greatest(before.last, now) AS last_reveal, here.n AS stored, acting.n,
           before.bytes + coalesce(here.bytes, 0) AS bytes, sum(before.bytes + coalesce(here.bytes, 0)) OVER (ORDER BY m.deal_id) AS total
    FROM missing m
    CROSS JOIN clock
    CROSS JOIN LATERAL (SELECT deal_id, round_time, seal_time, commits_closed_at FROM deals WHERE deal_id = m.deal_id OFFSET 0) AS d
    CROSS JOIN LATERAL (
        SELECT count(*) AS n, coalesce(sum(octet_length(sealed)), 0) AS bytes, max(revealed_at) AS last FROM reveals r WHERE r.deal_id = m.deal_id
    ) AS before
    JOIN (SELECT deal_id, max(n) AS n FROM wanted GROUP BY deal_id) AS acting ON acting.deal_id = m.deal_id
    LEFT JOIN (SELECT deal_id, count(*) AS n, sum(octet_length(sealed)) AS bytes FROM inserted GROUP BY deal_id) AS here ON here.deal_id = m.deal_id
    WHERE m.party IS NULL
      AND m.parties = before.n + coalesce(here.n, 0) -- $5 is only a hint, so all reveals are counted
),
closed AS (
    UPDATE deals d SET reveals_closed_at = now FROM complete
    WHERE d.deal_id = ANY($1) AND d.deal_id = complete.deal_id AND d.round_time IS NOT NULL AND d.reveals_closed_at IS NULL
      AND complete.stored > 0 -- this statement stored the last reveal
)
SELECT CASE WHEN (SELECT writes FROM secret) THEN w.deal_id = ANY((SELECT deals FROM locked)::text[]) END, i.party IS NOT NULL,
       CASE WHEN c.deal_id IS NULL THEN coalesce(m.party, 0) END,
       e.now, e.last_reveal, e.commits_closed_at,
       e.seal_time IS NOT NULL AND (EXISTS (SELECT FROM seals s WHERE s.deal_id = e.deal_id AND s.state = 'opened')
           OR EXISTS (SELECT FROM inserted i JOIN wanted b USING (deal_id, party) WHERE i.deal_id = e.deal_id AND b.by_seal)),
       CASE WHEN e.n IS NOT NULL THEN ARRAY(SELECT o.commitment FROM commitments o WHERE o.deal_id = e.deal_id ORDER BY o.party) END,
       CASE WHEN e.n IS NOT NULL THEN ARRAY(SELECT o.attested_by FROM commitments o WHERE o.deal_id = e.deal_id ORDER BY o.party) END,
       CASE WHEN e.n IS NOT NULL THEN ARRAY(
           SELECT sealed FROM (
               SELECT r.party, r.sealed FROM reveals r WHERE r.deal_id = e.deal_id
               UNION ALL SELECT i.party, i.sealed FROM inserted i WHERE i.deal_id = e.deal_id
           ) AS inputs ORDER BY party
       ) END
FROM wanted w
LEFT JOIN inserted i ON i.deal_id = w.deal_id AND i.party = w.party
LEFT JOIN missing m ON m.deal_id = w.deal_id
LEFT JOIN complete c ON c.deal_id = w.deal_id
LEFT JOIN complete e ON e.n = w.n AND e.round_time IS NULL AND e.total <= $9 AND e.bytes <= $12 -- the last call of each deal whose inputs fit within $9
ORDER BY w.n
