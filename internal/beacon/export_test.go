package beacon

import (
	"net/http"
	"time"
)

// The tests are in package beacon_test, because they import devbeacon, which imports beacon.
const (
	RelayTimeout = relayTimeout
	HedgeDelay   = hedgeDelay
	MaxBody      = maxBody
)

func (c *Client) SetNow(now func() time.Time) { c.now = now }

func (c *Client) SetTransport(t http.RoundTripper) { c.http = &http.Client{Transport: t} }
