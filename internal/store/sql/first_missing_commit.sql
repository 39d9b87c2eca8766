-- The first party from $2 on that has not committed. A party once seen never
-- goes missing again, so the caller starts where it last stopped. It goes from
-- party to party by scalar subqueries, one probe of an index each: EXISTS and
-- NOT EXISTS may become a join or a hash, which read all that have acted in
-- every call.
WITH RECURSIVE walk (party, acted) AS (
    SELECT $2::int, (SELECT party FROM commitments WHERE deal_id = $1 AND party = $2) IS NOT NULL
    UNION ALL
    SELECT walk.party + 1, (SELECT next.party FROM commitments next WHERE next.deal_id = $1 AND next.party = walk.party + 1) IS NOT NULL
    FROM walk WHERE acted AND walk.party + 1 < (SELECT parties FROM deals WHERE deal_id = $1)
)
SELECT party FROM walk WHERE NOT acted
