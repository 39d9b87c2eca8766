SELECT size, root FROM translog.log_head
