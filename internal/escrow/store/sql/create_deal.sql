-- Creates a group of deals with their parties (SPEC 2.2). A deal is created only if its commit_deadline is after
-- the time of the database's clock.
-- Deals: $1 ids, $2 owners, $3 algorithms, $4 params, $5 modes, $6 retentions, $7 numbers of parties, $8 commit deadlines,
--   $9 reveal deadlines, $10 chain hashes, $11 beacon rounds, $12 round times.
-- Idempotency: $13 scopes (null: no record), $14 bodies, $15 responses, $16 lifetimes in seconds.
-- Parties: $17 deals, $18 party indexes, $19 labels, $20 token hashes, $21 seat keys.
-- Fingerprints of the server secrets that the calls used: $22. If another secret is in force, the statement stores nothing.
-- $23: what each deal declares about seals (null: nothing). $24: maximum size of each deal's inputs in bytes. $25 and $26: titles
-- and messages, $27 and $28: audiences and who acts (null: none).
-- Returns for each deal: the time, whether it was created, and whether another server secret is in force.
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now),
secret AS MATERIALIZED (SELECT ((SELECT fingerprint FROM server_secret WHERE singleton) = ALL ($22::bytea[])) IS NOT FALSE AS writes),
wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::int[], $8::bigint[], $9::bigint[],
            $10::text[], $11::bigint[], $12::bigint[], $13::bytea[], $14::bytea[], $15::bytea[], $16::bigint[], $23::text[], $24::int[], $25::text[], $26::text[],
            $27::text[], $28::text[])
        WITH ORDINALITY AS w (deal_id, owner_hash, algorithm, params, mode, retention, parties, commit_deadline, reveal_deadline,
            chain_hash, beacon_round, round_time, scope, body, response, lifetime, seals, input_limit, title, message, audience, acted_by, n)
),
created AS (
    INSERT INTO deals (deal_id, owner_hash, algorithm, params, mode, retention, parties,
                       commit_deadline, reveal_deadline, created_at, chain_hash, beacon_round, round_time, seals, input_limit, title, message, audience, acted_by, phase)
    SELECT deal_id, owner_hash, algorithm, params, mode, retention, parties,
           commit_deadline, reveal_deadline, now, chain_hash, beacon_round, round_time, seals, input_limit, title, message, audience, acted_by, 'COMMITTING'
    FROM wanted, clock WHERE now < commit_deadline AND (SELECT writes FROM secret)
    RETURNING deal_id
),
seated AS (
    INSERT INTO parties (deal_id, party, label, token_hash, seat_key)
    SELECT deal_id, party, label, token_hash, seat_key
    FROM unnest($17::text[], $18::int[], $19::text[], $20::bytea[], $21::text[]) AS p (deal_id, party, label, token_hash, seat_key) JOIN created USING (deal_id)
),
recorded AS (
    INSERT INTO idempotency (scope, body, response, expires_at)
    SELECT scope, body, response, now + lifetime FROM wanted JOIN created USING (deal_id), clock WHERE scope IS NOT NULL ORDER BY scope
)
SELECT now, created.deal_id IS NOT NULL, NOT (SELECT writes FROM secret) FROM wanted LEFT JOIN created USING (deal_id), clock ORDER BY n
