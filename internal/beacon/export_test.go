package beacon

import "time"

// The tests in package beacon_test use these values. Those tests are outside package
// beacon, because they import devbeacon, which imports beacon.
const (
	RelayTimeout = relayTimeout
	HedgeDelay   = hedgeDelay
	MaxBody      = maxBody
)

// SetNow sets the clock that decides whether a round is due.
func (c *Client) SetNow(now func() time.Time) { c.now = now }
