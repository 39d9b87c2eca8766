package outage

import (
	"crypto/sha256"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/translog"
)

// readOnly checks that a read-only deployment answers reads, but refuses every change, and every read
// that would change a deal, with 503 READ_ONLY.
func readOnly(t *testing.T, stack *localstack.Stack) {
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.OpenDB(t, stack)
	whole, half := e2e.LastReveal(c, 0), e2e.LastReveal(c, 0)
	whole.Call(c)
	published := *whole.Deal.View().CertificateID
	key := c.Key()
	late := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	restartAll := func(env ...string) {
		t.Helper()
		for _, name := range stack.Names() {
			e2e.Must(t, stack.Restart(t.Context(), name, env...))
		}
	}
	restartAll("FAIRPACT_READ_ONLY=true")
	w.Exec(1, "UPDATE deals SET commit_deadline = extract(epoch FROM now())::bigint - 1 WHERE deal_id = $1", late.ID)
	written := func() string {
		return e2e.Value[string](w, `SELECT concat_ws(' ', (SELECT count(*) FROM deals), (SELECT count(*) FROM reveals), (SELECT count(*) FROM api_keys),
			(SELECT count(*) FROM certificates), (SELECT count(*) FROM idempotency), (SELECT count(*) FROM translog.leaves), (SELECT md5(string_agg(deal_id || phase, ',' ORDER BY deal_id)) FROM deals))`)
	}
	before := written()

	refused := func(method, path, token string, sent any, header ...string) {
		t.Helper()
		retrySoon(t, c.Refused(503, "READ_ONLY", method, path, token, sent, header...))
	}
	refused("POST", "/v1/keys", "", nil)
	refused("POST", "/v1/deals", key, e2e.SplitBody(time.Hour, 2*time.Hour), "Idempotency-Key", "maintenance")
	refused("POST", half.Deal.Path("/reveal"), half.Last.Token, half.Last.Body)
	said := c.Do("POST", "/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"create_key","arguments":{}}}`)
	if !strings.Contains(string(said.Body), "READ_ONLY: ") {
		t.Errorf("create_key over MCP while read-only: %s, want READ_ONLY", said.Body)
	}
	secret, err := os.ReadFile(stack.AppendSecretFile())
	e2e.Must(t, err)
	log := translog.NewClient(stack.LogAppendURL(localstack.LogServer), stack.LogReadURL(localstack.LogServer), strings.TrimSpace(string(secret)))
	if _, err := log.Append(t.Context(), sha256.Sum256([]byte("x")), "es256:00", translog.Tag{}); err == nil || !strings.Contains(err.Error(), "READ_ONLY: ") {
		t.Errorf("an append while read-only: %v, want READ_ONLY", err)
	}
	// A read of the overdue deal would end the deal, so the read is refused. The worker must not
	// end the deal either.
	refused("GET", late.Path(""), late.Tokens[0], nil)

	c.Want(http.StatusOK, "GET", half.Deal.Path(""), half.Deal.Key, nil)
	c.Refused(http.StatusUnauthorized, "INVALID_CREDENTIAL", "GET", half.Deal.Path(""), "fp_"+strings.Repeat("A", 43), nil)
	if v := half.Deal.View(); v.State != "REVEALING" {
		t.Errorf("the view of the deal is %+v, want REVEALING", v)
	}
	if !c.Verify(published).Valid {
		t.Error("a certificate is not valid while read-only")
	}
	whole.Deal.Certified(0)
	if a := c.Want(http.StatusOK, "GET", "/v1/status", "", nil); !strings.Contains(string(a.Body), "in maintenance") {
		t.Errorf("GET /v1/status while read-only: %s, want a note about it", a.Body)
	}
	for _, name := range stack.Names() {
		admin := e2e.NewClient(t, stack.AdminURL(name))
		if a := admin.Do("GET", "/metrics", "", nil); !strings.Contains(string(a.Body), "\nfairpact_read_only 1\n") {
			t.Errorf("%s does not report fairpact_read_only 1", name)
		}
		if a := admin.Do("GET", "/readyz", "", nil); a.Status != http.StatusOK {
			t.Errorf("%s is not ready: %s", name, a.Body)
		}
	}
	if after := written(); after != before {
		t.Errorf("the tables changed while read-only: they are %s, want %s", after, before)
	}

	restartAll()
	lastCall(t, c, half)
	half.Recomputed(t, c, half.Deal.Certified(e2e.DefaultTimeout))
	c.Want(201, "POST", "/v1/deals", key, e2e.SplitBody(time.Hour, 2*time.Hour), "Idempotency-Key", "maintenance")
	e2e.Eventually(t, "the worker voids", e2e.DefaultTimeout, func() bool { return w.Phase(late) == "VOID" })
	w.Converged()
}
