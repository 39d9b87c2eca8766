// Package abuse plays what a stranger can do for nothing against a deployment of
// its own, and looks at what it costs.
package abuse

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

// most is the memory that deal-api may have held at any time: half of the
// chart's limit.
const most = 512 << 20

// peak is the most memory that deal-api has held, in bytes.
func peak(t *testing.T, stack *localstack.Stack) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", stack.PID(localstack.DealAPI)))
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
	t.Fatal("no VmHWM")
	return 0
}

// survived plays a deal through and holds deal-api to its memory.
func survived(t *testing.T, stack *localstack.Stack, c *e2e.Client) {
	t.Helper()
	d := c.Create(e2e.SplitBody(hour, 2*hour))
	d.Play(e2e.AnnsValues, e2e.BobsValues)
	d.Certified(e2e.Patience)
	held := peak(t, stack)
	t.Logf("deal-api has held at most %d MiB", held>>20)
	if held > most {
		t.Errorf("deal-api has held %d MiB, more than %d", held>>20, most>>20)
	}
}
