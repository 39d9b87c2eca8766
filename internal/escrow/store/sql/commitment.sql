SELECT commitment FROM commitments WHERE deal_id = $1 AND party = $2
