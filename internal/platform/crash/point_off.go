//go:build !crashpoints

package crash

import "time"

// Point does nothing in a release build.
func Point(string) {}

// Now returns time.Now().
func Now() time.Time { return time.Now() }

// Setting returns "" in a release build.
func Setting(string) string { return "" }
