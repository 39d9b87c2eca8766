// Package version is what this build calls itself.
package version

// Set by the linker in a release: -X …/internal/version.Version=v1.2.3.
var (
	Version  = "0.1.0-dev"
	Revision = "" // the commit, 40 hex digits; empty: see what the Go toolchain stamped
)
