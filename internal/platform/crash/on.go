//go:build crashpoints

package crash

import (
	"os"
	"syscall"
	"time"
)

var (
	armed     = os.Getenv("FAIRPACT_CRASH_AT")
	offset, _ = time.ParseDuration(os.Getenv("FAIRPACT_CLOCK_OFFSET"))
)

// Now returns the time plus FAIRPACT_CLOCK_OFFSET (for example "-90s").
func Now() time.Time { return time.Now().Add(offset) }

// Setting returns the value of the environment variable. In a release build it returns "".
func Setting(name string) string { return os.Getenv(name) }

// Point ends the process as kill -9 would, without flushing or closing anything,
// if FAIRPACT_CRASH_AT is the name of this point.
func Point(name string) {
	if name != armed {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // block until SIGKILL arrives, so that no code after the point runs
}
