UPDATE translog.log_head SET size = $3, root = $4, hashes = $5 WHERE singleton AND size = $1 AND root = $2
