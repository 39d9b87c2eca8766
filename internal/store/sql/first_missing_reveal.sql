-- As first_missing_commit.sql.
WITH RECURSIVE walk (party, acted) AS (
    SELECT $2::int, EXISTS (SELECT FROM reveals WHERE deal_id = $1 AND party = $2)
    UNION ALL
    SELECT walk.party + 1, EXISTS (SELECT FROM reveals r WHERE r.deal_id = $1 AND r.party = walk.party + 1)
    FROM walk WHERE acted AND walk.party + 1 < (SELECT parties FROM deals WHERE deal_id = $1)
)
SELECT party FROM walk WHERE NOT acted
