package beacon

import "time"

// For the tests outside the package, which need devbeacon.
const (
	RelayTimeout = relayTimeout
	HedgeDelay   = hedgeDelay
	MaxBody      = maxBody
)

// SetNow sets the clock that says whether a round is due.
func (c *Client) SetNow(now func() time.Time) { c.now = now }
