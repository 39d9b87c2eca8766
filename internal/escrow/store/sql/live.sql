-- Counts the deals that have not ended and hold a sealed input or a seal, and the pending certificates. They need the server secret under
-- which they were stored.
SELECT (SELECT count(*) FROM deals d WHERE phase = 'REVEALING' AND reveals_closed_at IS NULL
            AND ((SELECT r.party FROM reveals r WHERE r.deal_id = d.deal_id LIMIT 1) IS NOT NULL
              OR (SELECT s.party FROM seals s WHERE s.deal_id = d.deal_id AND s.state = 'sealed' LIMIT 1) IS NOT NULL))
     + (SELECT count(*) FROM deals d WHERE phase = 'COMMITTING'
            AND (SELECT s.party FROM seals s WHERE s.deal_id = d.deal_id AND s.state = 'sealed' LIMIT 1) IS NOT NULL)
     + (SELECT count(*) FROM deals WHERE phase = 'REVEALING' AND reveals_closed_at IS NOT NULL),
       (SELECT count(*) FROM certificates WHERE leaf_index IS NULL)
