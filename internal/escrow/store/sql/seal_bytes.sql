-- Returns how many bytes the stored seals of the deal $1 have.
SELECT coalesce(sum(octet_length(sealed)), 0) FROM seals WHERE deal_id = $1
