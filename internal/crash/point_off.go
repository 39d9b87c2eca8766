//go:build !crashpoints

package crash

import "time"

// Point does nothing in a release build.
func Point(string) {}

// Now is the process's clock.
func Now() time.Time { return time.Now() }
