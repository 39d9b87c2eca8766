SELECT deal_id, party FROM parties WHERE token_hash = $1
