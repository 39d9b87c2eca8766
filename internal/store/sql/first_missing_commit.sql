-- The first party from $2 on that has not committed. A party once seen never
-- goes missing again, so the caller starts where it last stopped. It goes from
-- party to party, one probe of an index each: NOT EXISTS becomes a join, which
-- in a deal that Postgres has not counted yet reads all its rows in every call.
WITH RECURSIVE walk (party, acted) AS (
    SELECT $2::int, EXISTS (SELECT FROM commitments WHERE deal_id = $1 AND party = $2)
    UNION ALL
    SELECT walk.party + 1, EXISTS (SELECT FROM commitments c WHERE c.deal_id = $1 AND c.party = walk.party + 1)
    FROM walk WHERE acted AND walk.party + 1 < (SELECT parties FROM deals WHERE deal_id = $1)
)
SELECT party FROM walk WHERE NOT acted
