SELECT size, root, hashes FROM translog.log_head WHERE singleton
