-- Replaces the MAC of a pending certificate. $1 cert_id, $2 present MAC, $3 new MAC. Does nothing if the stored MAC is not $2.
UPDATE certificates SET mac = $3 WHERE cert_id = $1 AND mac = $2 AND leaf_index IS NULL
