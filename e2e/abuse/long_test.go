//go:build long

package abuse

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func init() {
	apart = splitCores
	// deal-api counts the cores when it starts, before splitCores.
	limits = append(limits, fmt.Sprint("GOMAXPROCS=", max(1, runtime.NumCPU()/2)))
}

// splitCores moves the servers to one half of the cores. This process and the victim stay on the other half.
func splitCores(t *testing.T) {
	var ours, theirs unix.CPUSet
	cores := runtime.NumCPU()
	if cores < 2 {
		return
	}
	for i := range cores {
		if i < cores/2 {
			theirs.Set(i)
		} else {
			ours.Set(i)
		}
	}
	files, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	e2e.Must(t, err)
	for _, file := range files {
		process, _ := strconv.Atoi(strings.Split(file, "/")[2])
		thread, _ := strconv.Atoi(filepath.Base(file))
		switch {
		case process == os.Getpid():
			e2e.Must(t, unix.SchedSetaffinity(thread, &ours))
		case descends(process, os.Getpid()):
			_ = unix.SchedSetaffinity(thread, &theirs) // it may have ended
		}
	}
}

// shareCores undoes splitCores for this process and those that it starts from then on.
func shareCores(t *testing.T) {
	var all unix.CPUSet
	for i := range runtime.NumCPU() {
		all.Set(i)
	}
	threads, err := filepath.Glob("/proc/self/task/[0-9]*")
	e2e.Must(t, err)
	for _, file := range threads {
		thread, _ := strconv.Atoi(filepath.Base(file))
		_ = unix.SchedSetaffinity(thread, &all) // it may have ended
	}
}

// withoutAutogroup makes the kernel share a core between threads instead of sessions, as it does in a container, for the processes that
// start before the test ends. Each backend of Postgres is a session of its own, and beside a process that wakes often it
// could wait for the core half a second at a time. A run that is killed leaves the setting of the machine at 0.
func withoutAutogroup(t *testing.T) {
	const file = "/proc/sys/kernel/sched_autogroup_enabled"
	before, err := os.ReadFile(file)
	if err != nil || os.WriteFile(file, []byte("0"), 0o600) != nil {
		t.Logf("%s cannot be set: latencies of seconds may be the machine's", file)
		return
	}
	t.Cleanup(func() { _ = os.WriteFile(file, before, 0o600) })
}

// descends reports whether a process was started by another, directly or not.
func descends(process, from int) bool {
	for process > 1 {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
		_, after, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(after)
		if len(fields) < 2 {
			return false
		}
		if process, _ = strconv.Atoi(fields[1]); process == from {
			return true
		}
	}
	return false
}

// TestReviewAtLength runs all attacks of the review from one address, from two and from sixteen.
func TestReviewAtLength(t *testing.T) {
	withoutAutogroup(t)
	stack := attacked(t)
	for _, a := range append(cheap, []attack{
		{"2a HEAD verify of large certificates", headCertificates},
		{"2b HEAD inputs", headInputs},
		{"3 HEAD of a large deal, 64 connections", headDeal},
		{"5 replay of a large certificate, 8 connections", replays},
		{"5 replay of a certificate with 9,980 seat keys, 8 connections", replaysWithKeys},
		{"ten thousand connections", tenThousand},
	}...) {
		t.Run(a.name, func(t *testing.T) {
			run := a.prepare(t, stack)
			for _, addresses := range []int{1, 2, 16} {
				t.Run(fmt.Sprintf("from %d", addresses), func(t *testing.T) { a.run(t, stack, run, addresses, 4*time.Second) })
			}
		})
	}
	t.Run("2c worker: ten large draws at once", draws(stack))
}

// tenThousand keeps ten thousand connections open. A third of them is idle after a call, a third has sent half of a
// header, and a third half of a body.
func tenThousand(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
	texts := []string{
		"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /v1/status HTTP/1.1\r\nHost: local",
		"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + fmt.Sprint(60_000) + "\r\n\r\n{",
	}
	return func(ctx context.Context, from *crowd) {
		var all sync.WaitGroup
		for i := range 10_000 {
			all.Go(func() {
				for ctx.Err() == nil {
					from.hold(ctx, i, texts[i%len(texts)])
				}
			})
		}
		all.Wait()
	}
}
