package abuse

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// largeBesideStalled sends tool calls of 120 KB, whose trees need more than their bodies, while the bodies of
// another address fill the memory for large calls and do not come. None may be refused.
func largeBesideStalled(t *testing.T, stack *localstack.Stack) {
	e2e.Must(t, stack.Restart(t.Context(), localstack.DealAPI, limits...))
	confine(t, stack)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	crowd := newCrowd(t, stack, 1)
	text := fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 120000\r\n\r\n%s", strings.Repeat(" ", 100_000))
	all.Go(func() { held(1500, text)(ctx, crowd) })
	e2e.Pause(ctx, time.Second)
	v := from(t, stack, victimAt)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"compute_commitment_tool","arguments":{"salt":"a","input":{"x":[` + strings.Repeat("1000000,", 14_000) + `0]}}}}`
	for i := range 50 {
		began := time.Now()
		a, err := v.Try(t.Context(), "POST", "/mcp", "", body)
		if err != nil || a.Status != 200 || !strings.Contains(string(a.Body), "sha256:") {
			t.Errorf("tool call %d: %v, %d %.300s after %v, want a commitment", i, err, a.Status, a.Body, time.Since(began))
		}
	}
}

// readersOfALargeDeal reads a deal of 10,000 parties 64 times at once, three times as often as the memory allows. None may be
// refused: who holds what it needs does not wait for more.
func readersOfALargeDeal(t *testing.T, stack *localstack.Stack) {
	d := e2e.NewClient(t, stack.BaseURL()).Create(largeBody(stack, hour/2))
	crowd := newCrowd(t, stack, 8)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for _, path := range []string{"", "/declaration", ""} {
				a, err := crowd.clients[i%8].Try(t.Context(), "GET", d.Path(path), d.Tokens[i], nil)
				if err != nil || a.Status != 200 {
					t.Errorf("reader %d of %s: %v, %d %.200s, want 200", i, path, err, a.Status, a.Body)
				}
			}
		})
	}
	all.Wait()
}
