SELECT randomness, signature FROM beacon_rounds WHERE chain_hash = $1 AND round = $2
