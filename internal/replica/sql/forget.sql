DELETE FROM replica.members WHERE seen_at < clock_timestamp() - interval '1 day'
