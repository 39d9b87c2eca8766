// Package version holds the version of this build.
package version

import (
	"runtime/debug"
	"sync"
)

// The linker sets Version and Revision in a release: -X …/internal/platform/version.Version=v1.2.3.
var (
	Version  = "0.1.0-dev"
	Revision = "" // the commit, 40 hex digits
)

// Commit returns the first 12 hex digits of Revision, or of the commit that the Go toolchain
// recorded, with "-dirty" if the checkout had changes. It returns "" if there is neither.
var Commit = sync.OnceValue(func() string {
	commit, dirty := Revision, ""
	if commit == "" {
		info, _ := debug.ReadBuildInfo()
		if info == nil {
			return ""
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "-dirty"
			}
		}
	}
	if commit == "" {
		return ""
	}
	return commit[:min(12, len(commit))] + dirty
})

// String returns Version. If the commit is known, String appends it as SemVer build metadata.
func String() string {
	if c := Commit(); c != "" {
		return Version + "+" + c
	}
	return Version
}
