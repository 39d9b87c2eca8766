-- Reads at most $3 inputs in the order of deal and party, starting after the input of deal $1 and party $2. The list ends early
-- once its inputs have $4 bytes or more. A purged input is null.
SELECT deal_id, party, sealed FROM (
    SELECT deal_id, party, sealed, coalesce(sum(octet_length(sealed)) OVER (ORDER BY deal_id, party ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM reveals WHERE (deal_id, party) > ($1::text, $2::int) ORDER BY deal_id, party LIMIT $3
) AS next
WHERE before < $4::bigint ORDER BY deal_id, party
