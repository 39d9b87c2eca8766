package outage

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/kmstest"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/platform/service"
)

// No call is lost when a process stops. deal-api still answers a reveal that waits for a lock in
// the database and then for a key service that hangs. A worker that stops leaves its unfinished
// certificate to the next worker.
func TestDrain(t *testing.T) {
	t.Parallel()
	// A call waits at most 10 s for its deal's lock. The delay is shorter, so that the reveal still
	// waits for the lock when the drain begins.
	const delay = time.Second
	kms := e2e.KeyService(t)
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Env[""] = append(o.Env[""], e2e.OneKey(t, kms.URI(kms.NewKey())))
		o.Env[localstack.DealAPI] = []string{"FAIRPACT_DRAIN_DELAY=" + delay.String()}
	})
	c, admin, w := e2e.NewClient(t, stack.BaseURL()), e2e.NewClient(t, stack.AdminURL(localstack.DealAPI)), e2e.OpenDB(t, stack)
	x := e2e.LastReveal(c, 0)
	lock := w.HoldDeal(x.Deal.ID)
	e2e.Must(t, kms.SetFault(kmstest.Hang))
	status := func(c *e2e.Client, path string) int {
		a, err := c.Try(t.Context(), "GET", path, "", nil)
		if err != nil {
			return 0
		}
		return a.Status
	}
	answered := make(chan e2e.Answer, 1)
	var reveal sync.WaitGroup
	reveal.Go(func() {
		a, err := x.Call(c)
		if err != nil {
			t.Errorf("the reveal under way: %v", err)
		}
		answered <- a
	})
	e2e.Eventually(t, "the reveal waits for the deal's lock", e2e.DefaultTimeout, func() bool {
		return w.Number(`SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('tuple', 'transactionid')`) > 0
	})

	began := time.Now()
	stack.Signal(localstack.DealAPI, syscall.SIGTERM)
	e2e.Eventually(t, "new connections are refused", e2e.DefaultTimeout, func() bool { return status(e2e.NewClient(t, stack.BaseURL()), "/v1/status") == 0 })
	if healthz, readyz := status(admin, "/healthz"), status(admin, "/readyz"); healthz != 200 || readyz != 503 {
		t.Errorf("during the reveal: /healthz %d, want 200; /readyz %d, want 503", healthz, readyz)
	}
	select {
	case a := <-answered:
		t.Fatalf("the reveal was answered while the deal's row was locked: %d %s", a.Status, a.Body)
	default:
	}
	calls := kms.Calls("AsymmetricSign")
	e2e.Must(t, lock.Rollback(t.Context()))
	e2e.Eventually(t, "deal-api asks the key service", e2e.DefaultTimeout, func() bool { return kms.Calls("AsymmetricSign") > calls })
	reveal.Wait()
	a := <-answered
	if a.Status != 200 || !strings.Contains(string(a.Body), `"state":"COMPUTED"`) || !a.Last {
		t.Errorf("the running reveal: %d %s, closes the connection: %v; want 200 and true", a.Status, a.Body, a.Last)
	}
	ends(t, stack, localstack.DealAPI, began.Add(delay))

	calls = kms.Calls("AsymmetricSign")
	e2e.Eventually(t, "the worker asks the key service", e2e.DefaultTimeout, func() bool { return kms.Calls("AsymmetricSign") > calls })
	info, err := os.Stat(stack.Log(localstack.DeadlineWorker))
	e2e.Must(t, err)
	logged := info.Size()
	began = time.Now()
	stack.Signal(localstack.DeadlineWorker, syscall.SIGTERM)
	ends(t, stack, localstack.DeadlineWorker, began)
	if log, err := os.ReadFile(stack.Log(localstack.DeadlineWorker)); err != nil || strings.Contains(string(log[logged:]), `"level":"ERROR"`) {
		t.Errorf("the worker logs an error at its stop: %v\n%s", err, log[logged:])
	}

	e2e.Must(t, kms.SetFault(kmstest.None))
	for _, name := range []string{localstack.DealAPI, localstack.DeadlineWorker} {
		e2e.Must(t, stack.Start(t.Context(), name))
	}
	w.Converged()
	x.Recomputed(t, e2e.NewClient(t, stack.BaseURL()), x.Deal.Certified(e2e.DefaultTimeout))
	w.Exactly(1, 1)
	e2e.Invariants(t, stack)
	drainEndsWaits(t, stack)
}

func ends(t *testing.T, stack *localstack.Stack, name string, drains time.Time) {
	t.Helper()
	if err := stack.Err(name); err != nil {
		t.Errorf("%s ended with %v, want success", name, err)
	}
	if took := time.Since(drains); took > service.DrainTimeout {
		t.Errorf("%s took %s to stop, longer than the drain timeout", name, took)
	}
}
