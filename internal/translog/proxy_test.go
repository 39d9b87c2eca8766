package translog

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
)

// HTTP_PROXY is for what lies outside (a cloud's KMS, drand). The append secret
// goes to log-server alone. The variable is read once a process, so the client
// is made in one of its own. A proxy is never asked for the loopback's own
// addresses, but for this one, at which nobody answers.
func TestTheAppendSecretGoesToNoProxy(t *testing.T) {
	const inner = "FAIRPACT_TEST_BEHIND_A_PROXY"
	if os.Getenv(inner) != "" {
		client := NewClient("http://0.0.0.0:1", "http://0.0.0.0:1", secret)
		if _, err := client.Append(t.Context(), entryOf(0), "es256:AA", Tag{}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("append: %v", err)
		}
		if _, err := client.TreeHead(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("tree head: %v", err)
		}
		return
	}
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the proxy was sent %s %s, Authorization: %q", r.Method, r.URL, r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	program, err := os.Executable()
	check(t, err)
	child := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), inner+"=1", "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
