SELECT sealed FROM reveals WHERE deal_id = $1 ORDER BY party
