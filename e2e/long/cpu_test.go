//go:build long

package long

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/localstack"
)

// meter tells what each process of a stack has used of the processors, so that
// a long test can say what bounded it.
type meter struct {
	stack *localstack.Stack
	began time.Time
	used  map[string]time.Duration
}

const tick = 10 * time.Millisecond // of /proc/<pid>/stat, on every Linux that Go runs on

func newMeter(stack *localstack.Stack) *meter {
	return &meter{stack, time.Now(), processorTime(stack)}
}

// lap gives the time and the processor time since the last lap.
func (m *meter) lap() string {
	now, used := time.Now(), processorTime(m.stack)
	var text strings.Builder
	fmt.Fprintf(&text, "%.2f s", now.Sub(m.began).Seconds())
	for _, name := range append(m.stack.Names(), "Postgres", "this test") {
		fmt.Fprintf(&text, ", %s %.2f s", name, (used[name] - m.used[name]).Seconds())
	}
	m.began, m.used = now, used
	return text.String()
}

// processorTime is what processes have used since their start; those of
// Postgres are its server and the children that are alive. Empty where the
// system does not tell.
func processorTime(stack *localstack.Stack) map[string]time.Duration {
	names := map[int]string{os.Getpid(): "this test", stack.Postgres().PID(): "Postgres"}
	for _, name := range stack.Names() {
		names[stack.PID(name)] = name
	}
	used := map[string]time.Duration{}
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// proc(5): the name stands in brackets and may hold anything; state, ppid, …
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 13 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(fields[1])
		name := names[pid]
		if name == "" && names[parent] == "Postgres" {
			name = "Postgres"
		}
		if name != "" {
			user, _ := strconv.Atoi(fields[11])
			system, _ := strconv.Atoi(fields[12])
			used[name] += time.Duration(user+system) * tick
		}
	}
	return used
}
