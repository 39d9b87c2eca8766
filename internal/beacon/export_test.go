package beacon

import "time"

// client_test.go uses these values. It is outside this package, because it imports
// devbeacon, which imports this package.
const (
	RelayTimeout = relayTimeout
	HedgeDelay   = hedgeDelay
	MaxBody      = maxBody
)

// SetNow sets the clock that decides whether a round is due.
func (c *Client) SetNow(now func() time.Time) { c.now = now }
