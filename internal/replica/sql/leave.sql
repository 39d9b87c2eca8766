DELETE FROM replica.members WHERE name = $1
