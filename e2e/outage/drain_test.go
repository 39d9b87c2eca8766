package outage

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/service"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

// A stop loses no call: deal-api answers the call under way, a reveal that waits for the
// database and then for a key service that hangs, and the worker leaves its unfinished
// certificate to the next worker. internal/service proves the drain delay.
func TestDrain(t *testing.T) {
	t.Parallel()
	const delay = time.Second // shorter than the 10 s that a call may wait for its deal's lock
	kms := e2e.KeyService(t)
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Env[""] = append(o.Env[""], "FAIRPACT_SIGNING_KEY="+kms.URI(kms.NewKey()))
		o.Env[localstack.DealAPI] = []string{"FAIRPACT_DRAIN_DELAY=" + delay.String()}
	})
	c, admin, w := e2e.NewClient(t, stack.BaseURL()), e2e.NewClient(t, stack.AdminURL(localstack.DealAPI)), e2e.Database(t, stack)
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
	e2e.Eventually(t, "the reveal waits for the deal's lock", e2e.Patience, func() bool {
		return w.Number(`SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('tuple', 'transactionid')`) > 0
	})

	began := time.Now()
	stack.Signal(localstack.DealAPI, syscall.SIGTERM)
	e2e.Eventually(t, "new connections are refused", e2e.Patience, func() bool { return status(e2e.NewClient(t, stack.BaseURL()), "/v1/status") == 0 })
	if healthz, readyz := status(admin, "/healthz"), status(admin, "/readyz"); healthz != 200 || readyz != 503 {
		t.Errorf("while the reveal is under way: /healthz %d, /readyz %d", healthz, readyz)
	}
	select {
	case a := <-answered:
		t.Fatalf("the reveal was answered before the deal's lock was free: %d %s", a.Status, a.Body)
	default:
	}
	calls := kms.Calls("AsymmetricSign")
	e2e.Must(t, lock.Rollback(t.Context()))
	e2e.Eventually(t, "deal-api asks the key service", e2e.Patience, func() bool { return kms.Calls("AsymmetricSign") > calls })
	reveal.Wait()
	a := <-answered
	if a.Status != 200 || !strings.Contains(string(a.Body), `"state":"COMPUTED"`) || !a.Last {
		t.Errorf("the reveal under way: %d %s, closes the connection: %v", a.Status, a.Body, a.Last)
	}
	ends(t, stack, localstack.DealAPI, began.Add(delay))

	// The worker tries to finish the certificate that could not be signed.
	calls = kms.Calls("AsymmetricSign")
	e2e.Eventually(t, "the worker asks the key service", e2e.Patience, func() bool { return kms.Calls("AsymmetricSign") > calls })
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
	x.Recomputed(t, e2e.NewClient(t, stack.BaseURL()), x.Deal.Certified(e2e.Patience))
	w.Exactly(1, 1)
	e2e.Invariants(t, stack)
}

// ends requires that a process exits with success within the drain timeout.
func ends(t *testing.T, stack *localstack.Stack, name string, drains time.Time) {
	t.Helper()
	if err := stack.Err(name); err != nil {
		t.Errorf("%s ended with %v", name, err)
	}
	if took := time.Since(drains); took > service.DrainTimeout {
		t.Errorf("%s took %s to stop", name, took)
	}
}

// leases is the part of a Kubernetes API server that leader election needs: one
// Lease, replaced by compare-and-swap.
type leases struct {
	mu      sync.Mutex
	version int
	lease   map[string]any // nil before the Lease is created
}

func (l *leases) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const all = "/apis/coordination.k8s.io/v1/namespaces/here/leases"
	status := http.StatusOK
	next, metadata := map[string]any(nil), map[string]any(nil)
	sent, err := io.ReadAll(r.Body)
	if err == nil && len(sent) > 0 {
		var object runtime.Object // sent as protobuf
		if object, _, err = scheme.Codecs.UniversalDeserializer().Decode(sent, nil, nil); err == nil {
			next, err = runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		}
		metadata, _ = next["metadata"].(map[string]any)
	}
	switch {
	case err != nil:
		status = http.StatusBadRequest
	case r.Method == http.MethodPost && r.URL.Path == all && l.lease == nil:
		status = http.StatusCreated
	case !strings.HasPrefix(r.URL.Path, all+"/") || l.lease == nil:
		status = http.StatusNotFound
	case r.Method == http.MethodPut && metadata["resourceVersion"] != fmt.Sprint(l.version):
		status = http.StatusConflict
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if status >= 300 {
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`, status, strings.ReplaceAll(http.StatusText(status), " ", ""))
		return
	}
	if next != nil {
		l.version++
		metadata["resourceVersion"] = fmt.Sprint(l.version)
		l.lease = next
	}
	_ = json.NewEncoder(w).Encode(l.lease)
}

// holder returns the identity of the leader, or "" if there is none.
func (l *leases) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	spec, _ := l.lease["spec"].(map[string]any)
	name, _ := spec["holderIdentity"].(string)
	return name
}

// A worker that stops releases its Lease: the other worker leads long before the
// Lease would have expired, and voids overdue deals.
func TestWorkerHandsItsLeaseOver(t *testing.T) {
	t.Parallel()
	api := &leases{}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}`, server.URL)
	e2e.Must(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DeadlineWorker: 2}
		o.Env[localstack.DeadlineWorker] = []string{"KUBECONFIG=" + kubeconfig, "FAIRPACT_LEADER_ELECTION=true", "FAIRPACT_LEASE_NAMESPACE=here", "FAIRPACT_FAILOVER=1m"}
	})
	// The first worker leads because the second starts later.
	e2e.Must(t, stack.Stop(e2e.SecondWorker))
	var first string
	e2e.Eventually(t, "one leads", e2e.Patience, func() bool { first = api.holder(); return first != "" })
	e2e.Must(t, stack.Start(t.Context(), e2e.SecondWorker))
	if now := api.holder(); now != first {
		t.Fatalf("a standby takes the Lease of %s at its start, as %q", first, now)
	}
	began := time.Now()
	stack.Signal(localstack.DeadlineWorker, syscall.SIGTERM)
	ends(t, stack, localstack.DeadlineWorker, began)
	if now := api.holder(); now == first {
		t.Errorf("a worker that has ended still holds the Lease, as %s", now)
	}
	e2e.Eventually(t, "the other leads", e2e.Patience, func() bool { now := api.holder(); return now != "" && now != first })
	t.Logf("the other led %s after the signal", time.Since(began).Round(time.Millisecond))
	w := e2e.Database(t, stack)
	missed := e2e.Played(t, e2e.NewClient(t, stack.BaseURL()), e2e.MissedCommit)
	e2e.Eventually(t, "the other voids", e2e.Patience, func() bool { return w.Phase(missed.Deal) == "VOID" })
}
