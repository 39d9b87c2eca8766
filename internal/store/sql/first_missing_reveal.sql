-- As first_missing_commit.sql.
WITH RECURSIVE walk (party, acted) AS (
    SELECT $2::int, (SELECT party FROM reveals WHERE deal_id = $1 AND party = $2) IS NOT NULL
    UNION ALL
    SELECT walk.party + 1, (SELECT next.party FROM reveals next WHERE next.deal_id = $1 AND next.party = walk.party + 1) IS NOT NULL
    FROM walk WHERE acted AND walk.party + 1 < (SELECT parties FROM deals WHERE deal_id = $1)
)
SELECT party FROM walk WHERE NOT acted
