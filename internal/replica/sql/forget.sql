DELETE FROM replica.members WHERE abs(extract(epoch FROM clock_timestamp() - seen_at)) > 86400
