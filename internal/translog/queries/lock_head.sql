SELECT size, root, hashes FROM translog.log_head FOR UPDATE
