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

// Now is the process's clock, which FAIRPACT_CLOCK_OFFSET ("-90s") sets apart.
func Now() time.Time { return time.Now().Add(offset) }

// Point ends the process as kill -9 would, with nothing flushed or closed,
// where FAIRPACT_CRASH_AT names this point.
func Point(name string) {
	if name != armed {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way: nothing after the point may run
}
