-- What never changes about a deal.
SELECT d.owner_hash, d.algorithm, d.params, d.mode, d.retention, d.commit_deadline, d.reveal_deadline, d.created_at,
       d.chain_hash, d.beacon_round, d.round_time,
       ARRAY(SELECT label FROM parties p WHERE p.deal_id = d.deal_id ORDER BY party)
FROM deals d WHERE d.deal_id = $1
