package version

import (
	"runtime/debug"
	"sync"
)

// Commit is the revision that this was built from, 12 hex digits, and "-dirty"
// where the checkout had changes; empty where nobody knows.
var Commit = sync.OnceValue(func() string {
	if Revision != "" {
		return short(Revision)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = short(s.Value)
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + dirty
})

// String is the version and, as SemVer's build metadata, the commit.
func String() string {
	if c := Commit(); c != "" {
		return Version + "+" + c
	}
	return Version
}

func short(commit string) string { return commit[:min(12, len(commit))] }
