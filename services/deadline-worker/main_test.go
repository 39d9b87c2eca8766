package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

func TestTheElectionTakesLessThan15Seconds(t *testing.T) {
	t.Parallel()
	interval := time.Duration((1 + leaderelection.JitterFactor) * float64(retry))
	if worst := interval + lease + interval; worst > 15*time.Second*9/10 {
		t.Errorf("up to %s without a leader, want time left for the calls to the API server", worst)
	}
	if lease <= renew || renew <= interval || lease%time.Second != 0 {
		t.Errorf("lease %s, renew deadline %s, retry %s; want the periods that client-go accepts", lease, renew, retry)
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
	cluster, err := apiServer()
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cluster.Host, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ask := cluster.Proxy; ask == nil {
		t.Error("the proxy is that of the environment, want none")
	} else if proxy, err := ask(r); err != nil || proxy != nil {
		t.Errorf("proxy %v, %v; want none", proxy, err)
	}
}
