// Package abuse tests deal-api under attacks that cost the attacker little.
package abuse

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		if err := playVictim(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(e2e.Main(m))
}

// mostMemory is the limit of deal-api's peak memory in bytes: half of the memory limit in the chart.
const mostMemory = 512 << 20

// peak returns deal-api's peak memory so far, in bytes.
func peak(t *testing.T, stack *localstack.Stack) int64 {
	t.Helper()
	return peakOf(t, stack, localstack.DealAPI)
}

// peakOf returns the peak memory of a process so far, in bytes.
func peakOf(t *testing.T, stack *localstack.Stack, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", stack.PID(name)))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("/proc/PID/status of %s has no line VmHWM", name)
	return 0
}

func survived(t *testing.T, stack *localstack.Stack) {
	t.Helper()
	e2e.NewClient(t, stack.BaseURL()).ComputedDeal().Certified(e2e.DefaultTimeout)
	held := peak(t, stack)
	t.Logf("deal-api used at most %d MiB", held>>20)
	if held > mostMemory {
		t.Errorf("deal-api used %d MiB, want at most %d", held>>20, mostMemory>>20)
	}
}
