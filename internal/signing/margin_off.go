//go:build !crashpoints

package signing

import "time"

// Margin is how far the clocks of processes and clients may be apart: a key is
// accepted and published as the current one so long before it signs.
func Margin() time.Duration { return 5 * time.Minute }
