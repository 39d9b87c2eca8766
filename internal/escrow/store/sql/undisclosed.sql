-- Lists the parties of the deal $1 that have revealed but do not show their inputs to the other parties.
SELECT party FROM reveals WHERE deal_id = $1 AND NOT disclosed ORDER BY party
