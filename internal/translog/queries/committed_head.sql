SELECT size, root FROM translog.log_head WHERE singleton
