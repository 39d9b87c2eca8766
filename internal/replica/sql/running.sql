SELECT name, kind, signs_with, accepts FROM replica.members
WHERE abs(extract(epoch FROM clock_timestamp() - seen_at)) < $1
ORDER BY kind, name
