-- Reads a page of the sealed inputs of the deal $1, from the party $2 on. The page ends once its inputs have $3 bytes or more,
-- or before the party $4.
SELECT deal_id, party, sealed, false FROM (
    SELECT deal_id, party, sealed, coalesce(sum(octet_length(sealed)) OVER (ORDER BY party ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM reveals WHERE deal_id = $1 AND party >= $2 AND party < $4
) AS page
WHERE before < $3::bigint ORDER BY party
