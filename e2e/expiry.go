package e2e

import (
	"time"
)

// Nonces commits and reveals a random.v1 deal whose round was out long ago.
func (c *Client) Nonces(chain interface{ RoundAt(int64) int64 }, commitDeadline, revealDeadline int64) (d *Dealt, inTime bool) {
	c.T.Helper()
	d = c.Create(Timed(RandomBody(2, chain.RoundAt(time.Now().Unix())-60, 0, 0), commitDeadline, revealDeadline))
	s := Seal(c.T, Body{"nonce": "c0ffee"})
	for _, action := range []string{"commit", "reveal"} {
		for p := range d.Tokens {
			if !d.Attempt(action, p, s.Act(action)) {
				return d, false
			}
		}
	}
	return d, true
}

// RevealedEarlier takes seconds off the times at which a deal of two was revealed.
func (w Witness) RevealedEarlier(d *Dealt, seconds int) {
	w.T.Helper()
	w.Exec(2, "UPDATE reveals SET revealed_at = revealed_at - $2::bigint WHERE deal_id = $1", d.ID, seconds)
	w.Exec(1, "UPDATE deals SET reveals_closed_at = reveals_closed_at - $2::bigint WHERE deal_id = $1 AND reveals_closed_at IS NOT NULL", d.ID, seconds)
}
