-- Stores that the party $2 of the deal $1 shows its input to the other parties. Does nothing if that is stored already.
UPDATE reveals SET disclosed = true WHERE deal_id = $1 AND party = $2 AND NOT disclosed
