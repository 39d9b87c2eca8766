-- Reads at most $2 seals of the deal $1 that are not opened yet, each with the commitment of its party. The list ends early once
-- its seals have $3 bytes or more.
SELECT party, sealed, commitment FROM (
    SELECT s.party, s.sealed, (SELECT c.commitment FROM commitments c WHERE c.deal_id = s.deal_id AND c.party = s.party) AS commitment,
           coalesce(sum(octet_length(s.sealed)) OVER (ORDER BY s.party ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM (SELECT deal_id, party, sealed FROM seals WHERE deal_id = $1 AND state = 'sealed' ORDER BY party LIMIT $2) AS s
) AS batch
WHERE before < $3::bigint ORDER BY party
