-- Gives a pending certificate the MAC of another secret. $1 cert_id, $2 its MAC until now, $3 the new one.
UPDATE certificates SET mac = $3 WHERE cert_id = $1 AND mac = $2 AND leaf_index IS NULL
