package beacon

import "time"

// The tests are outside this package because they import devbeacon, which imports this
// package.
const (
	RelayTimeout = relayTimeout
	HedgeDelay   = hedgeDelay
	MaxBody      = maxBody
)

// SetNow sets the clock that decides whether a round is due.
func (c *Client) SetNow(now func() time.Time) { c.now = now }
