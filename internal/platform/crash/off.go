//go:build !crashpoints

// Package crash lets tests change how a process runs: they kill it at a named point, shift
// its clock, and shorten long intervals. It has an effect only in binaries built with the tag
// crashpoints; in every other build, the compiler removes the calls of Point.
package crash

import "time"

// Point does nothing in a release build.
func Point(string) {}

// Now returns time.Now() in a release build.
func Now() time.Time { return time.Now() }

// Setting returns "" in a release build.
func Setting(string) string { return "" }
