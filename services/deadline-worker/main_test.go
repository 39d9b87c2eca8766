package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func TestElectionIsWithinTheFailoverTime(t *testing.T) {
	t.Parallel()
	for failover := 5 * time.Second; failover <= time.Hour; failover += 250 * time.Millisecond {
		var o manager.Options
		if err := (config{Failover: failover}).election(&o); err != nil {
			t.Fatal(err)
		}
		interval := time.Duration((1 + leaderelection.JitterFactor) * float64(*o.RetryPeriod))
		if worst := interval + *o.LeaseDuration + interval; worst > failover*9/10 {
			t.Errorf("failover %s: up to %s without a leader, want at most nine tenths of the failover time", failover, worst)
		}
		if *o.LeaseDuration <= *o.RenewDeadline || *o.RenewDeadline <= interval || *o.LeaseDuration%time.Second != 0 {
			t.Errorf("failover %s: lease %s, renew deadline %s, retry %s; want the periods that client-go accepts", failover, *o.LeaseDuration, *o.RenewDeadline, *o.RetryPeriod)
		}
	}
	for _, failover := range []time.Duration{0, -1, 5*time.Second - 1, time.Hour + 1} {
		if (config{Failover: failover}).election(new(manager.Options)) == nil {
			t.Errorf("a failover time of %s is accepted, want an error", failover)
		}
	}
}

// HTTPS_PROXY may be set so that the worker reaches an external key service. Such a proxy
// cannot reach the API server inside the cluster.
func TestTheAPIServerIsCalledWithoutAProxy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"a",
"clusters":[{"name":"a","cluster":{"server":"https://api.test"}}],"contexts":[{"name":"a","context":{"cluster":"a"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	mgr, err := newManager(config{LeaderElection: true, LeaseName: "a", LeaseNamespace: "a", Failover: 15 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, mgr.GetConfig().Host, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ask := mgr.GetConfig().Proxy; ask == nil {
		t.Error("the proxy is that of the environment, want none")
	} else if proxy, err := ask(r); err != nil || proxy != nil {
		t.Errorf("proxy %v, %v; want none", proxy, err)
	}
}
