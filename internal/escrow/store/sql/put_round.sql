INSERT INTO beacon_rounds (chain_hash, round, randomness, signature) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
