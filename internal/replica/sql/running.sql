SELECT name, kind, signs_with, accepts FROM replica.members
WHERE seen_at > clock_timestamp() - make_interval(secs => $1)
ORDER BY kind, name
