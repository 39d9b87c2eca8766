package e2e

import (
	"testing"
	"time"
)

// Played plays a deal with as much time as the machine needs.
func Played(t *testing.T, c *Client, play Scenario) *Cut {
	t.Helper()
	for lead := time.Second; lead < Patience; lead *= 2 {
		if x := play(c, lead); x != nil {
			return x
		}
	}
	t.Fatal("no deal can be made before its deadline")
	return nil
}
