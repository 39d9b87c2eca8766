-- Ends all deals that have not ended and hold an input or a seal. Runs only if the server secret is lost, so that nobody can decrypt the
-- inputs. The deals become EXPIRED, without a certificate (SPEC 3).
WITH lost AS MATERIALIZED (
    SELECT deal_id FROM deals d WHERE phase = 'REVEALING' AND reveals_closed_at IS NULL
        AND ((SELECT r.party FROM reveals r WHERE r.deal_id = d.deal_id LIMIT 1) IS NOT NULL
          OR (SELECT s.party FROM seals s WHERE s.deal_id = d.deal_id AND s.state = 'sealed' LIMIT 1) IS NOT NULL)
    UNION ALL
    SELECT deal_id FROM deals d WHERE phase = 'COMMITTING'
        AND (SELECT s.party FROM seals s WHERE s.deal_id = d.deal_id AND s.state = 'sealed' LIMIT 1) IS NOT NULL
    UNION ALL
    SELECT deal_id FROM deals WHERE phase = 'REVEALING' AND reveals_closed_at IS NOT NULL
),
ended AS (
    UPDATE deals d SET phase = 'EXPIRED', ended_at = floor(extract(epoch FROM clock_timestamp())) FROM lost WHERE d.deal_id = ANY (ARRAY(SELECT deal_id FROM lost)) AND d.deal_id = lost.deal_id
    RETURNING d.deal_id, d.retention
),
unsealed AS (
    UPDATE seals s SET sealed = NULL, secret = NULL, state = CASE s.state WHEN 'sealed' THEN 'unused' ELSE s.state END
    FROM ended e WHERE s.deal_id = ANY (ARRAY(SELECT deal_id FROM ended)) AND s.deal_id = e.deal_id AND (s.state = 'sealed' OR e.retention = 'purge')
)
UPDATE reveals r SET sealed = NULL FROM ended e WHERE r.deal_id = ANY (ARRAY(SELECT deal_id FROM ended)) AND r.deal_id = e.deal_id AND e.retention = 'purge'
