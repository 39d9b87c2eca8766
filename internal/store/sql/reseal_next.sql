-- Reads the inputs after one ($1 deal, $2 party) in the order of their key: at most $3 of them, and none once they have
-- reached $4 bytes. A purged input is null.
SELECT deal_id, party, sealed FROM (
    SELECT deal_id, party, sealed, coalesce(sum(octet_length(sealed)) OVER (ORDER BY deal_id, party ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM reveals WHERE (deal_id, party) > ($1::text, $2::int) ORDER BY deal_id, party LIMIT $3
) AS next
WHERE before < $4::bigint ORDER BY deal_id, party
