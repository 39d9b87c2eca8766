INSERT INTO translog.witnessed (tree_size) VALUES ($1) ON CONFLICT DO NOTHING
