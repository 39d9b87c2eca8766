package outage

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

func lastCall(t *testing.T, c *e2e.Client, x *e2e.UnfinishedDeal) e2e.Answer {
	t.Helper()
	if x.EndsByDeadline {
		e2e.WaitUntil(t, x.From)
	}
	a, err := x.Call(c)
	if err != nil || a.Status != 200 {
		t.Fatalf("the last call: error %v, %d %s, want 200", err, a.Status, a.Body)
	}
	return a
}

func pending(t *testing.T, w e2e.DB, d *e2e.CreatedDeal, state, reason string) {
	t.Helper()
	v := d.View()
	if v.State != state || v.CertificateID != nil || (string(v.Result) != "null") != (state == "COMPUTED") {
		t.Errorf("the view is %+v, want %s without a certificate", v, state)
	}
	a := d.C.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate"), d.Tokens[0], nil)
	if !strings.Contains(a.ErrorText(), reason) || a.Header.Get("Retry-After") == "" {
		t.Errorf("GET certificate: %s with Retry-After %q, want CERT_NOT_READY with the reason", a.Body, a.Header.Get("Retry-After"))
	}
	certID := e2e.Value[string](w, "SELECT cert_id FROM certificates WHERE deal_id = $1 AND leaf_index IS NULL", d.ID)
	d.C.Refused(404, "CERT_NOT_FOUND", "GET", "/v1/verify/"+certID, "", nil)
}

func TestOutages(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, nil)
	for _, outage := range []struct {
		name string
		test func(*testing.T, *localstack.Stack)
	}{
		{"log-server stopped", logServerStopped},
		{"log-server hangs", logServerHangs},
		{"Postgres down", postgresDown},
		{"read-only", readOnly},
		{"worker stopped", workerStopped},
	} {
		if !t.Run(outage.name, func(t *testing.T) { outage.test(t, stack) }) {
			return
		}
	}
	e2e.OpenDB(t, stack).Converged()
	e2e.Invariants(t, stack)
}

// While log-server is stopped, deals still end. When log-server is back, the worker publishes the
// certificates of these deals, and no client has to call.
func logServerStopped(t *testing.T, stack *localstack.Stack) {
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.OpenDB(t, stack)
	before := e2e.LastReveal(c, 0)
	before.Call(c)
	published := *before.Deal.View().CertificateID
	if !c.Verify(published).Valid {
		t.Fatal("the certificate is not valid before the outage")
	}

	e2e.Must(t, stack.Stop(localstack.LogServer))
	// SPEC 4: without the log, deal-api returns no verdict.
	for _, path := range []string{"/v1/verify/" + published, "/v1/log/tree-head"} {
		a := c.Refused(503, "LOG_UNAVAILABLE", "GET", path, "", nil)
		if a.Header.Get("Retry-After") == "" || strings.Contains(string(a.Body), `"valid"`) {
			t.Errorf("%s without the log: %v %s", path, a.Header, a.Body)
		}
	}
	c.Refused(503, "LOG_UNAVAILABLE", "GET", before.Deal.Path("/certificate"), before.Deal.Tokens[0], nil)
	c.Refused(404, "CERT_NOT_FOUND", "GET", "/v1/verify/c_unknown", "", nil)
	if _, said := e2e.NewCtl(t, stack.BaseURL()).Run(1, "smoke", "--timeout", "2s"); !strings.Contains(said, "no verified certificate within 2s") ||
		!strings.Contains(said, "CERT_NOT_READY") || !strings.Contains(said, "log") {
		t.Errorf("fairpactctl smoke without the log says %q, want the failed check", said)
	}

	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	var all []*e2e.UnfinishedDeal
	for _, play := range []e2e.Scenario{e2e.LastReveal, e2e.Rejection, e2e.Draw(past), e2e.MissedCommit} {
		x := e2e.Played(t, c, play)
		var answer struct {
			State         string
			CertificateID *string `json:"certificate_id"`
		}
		if lastCall(t, c, x).Into(t, &answer); answer.State != x.Outcome || answer.CertificateID != nil {
			t.Errorf("the last call: %+v, want %s without a certificate", answer, x.Outcome)
		}
		pending(t, w, x.Deal, x.Outcome, "transparency log is out of reach")
		all = append(all, x)
	}

	e2e.Must(t, stack.Start(t.Context(), localstack.LogServer))
	w.Converged()
	for _, x := range all {
		v := x.Deal.View()
		if v.CertificateID == nil || !c.Verify(*v.CertificateID).Valid {
			t.Errorf("the certificate is not valid after the outage: %+v", v)
		}
		x.Recomputed(t, c, x.Deal.Certified(0))
	}
	if !c.Verify(published).Valid {
		t.Error("the first certificate is not valid after the outage")
	}
}

// log-server accepts connections but does not answer. Every call still gets an answer within a
// minute, the timeout of the test's client.
func logServerHangs(t *testing.T, stack *localstack.Stack) {
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.OpenDB(t, stack)
	before := e2e.LastReveal(c, 0)
	before.Call(c)
	published := *before.Deal.View().CertificateID
	x := e2e.LastReveal(c, 0)

	log := stack.PID(localstack.LogServer)
	e2e.Must(t, syscall.Kill(log, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(log, syscall.SIGCONT) })
	lastCall(t, c, x)
	var calls sync.WaitGroup
	calls.Go(func() { pending(t, w, x.Deal, "COMPUTED", "transparency log is out of reach") })
	for _, path := range []string{"/v1/verify/" + published, "/v1/log/tree-head", before.Deal.Path("/certificate")} {
		calls.Go(func() { c.Refused(503, "LOG_UNAVAILABLE", "GET", path, before.Deal.Tokens[0], nil) })
	}
	calls.Wait()
	e2e.Must(t, syscall.Kill(log, syscall.SIGCONT))
	w.Converged()
	x.Recomputed(t, c, x.Deal.Certified(0))
}

// SPEC 4 rule 4: the last call of a deal issues the certificate without the worker. SPEC 3: any
// call to an overdue deal makes the deal VOID, even if the call is refused.
func workerStopped(t *testing.T, stack *localstack.Stack) {
	e2e.Must(t, stack.Stop(localstack.DeadlineWorker))
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.OpenDB(t, stack)
	late := e2e.Played(t, c, e2e.MissedCommit)
	w.Pass(late.From)
	if phase := w.Phase(late.Deal); phase != "COMMITTING" {
		t.Errorf("before any call the overdue deal is %s, want it unchanged", phase)
	}
	c.Refused(409, "DEADLINE_PASSED", "POST", late.Deal.Path("/commit"), late.Deal.Tokens[1], late.Inputs[1].Act("commit"))
	if phase := w.Phase(late.Deal); phase != "VOID" {
		t.Errorf("after the refused commit the overdue deal is %s, want VOID", phase)
	}
	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	for _, play := range []e2e.Scenario{e2e.LastReveal, e2e.Rejection, e2e.Draw(past), e2e.MissedReveal} {
		x := e2e.Played(t, c, play)
		lastCall(t, c, x)
		if v := x.Deal.View(); v.State != x.Outcome || v.CertificateID == nil {
			t.Errorf("after the last call: %+v", v)
		}
		x.Recomputed(t, c, x.Deal.Certified(0))
	}
	e2e.Must(t, stack.Start(t.Context(), localstack.DeadlineWorker))
}

// Postgres stops and starts again under load. While Postgres is stopped, calls that need Postgres
// get a 503 with Retry-After. No acknowledged call is lost or done twice, and no process restarts.
func postgresDown(t *testing.T, stack *localstack.Stack) {
	c := e2e.NewClient(t, stack.BaseURL())
	whole, half := e2e.LastReveal(c, 0), e2e.LastReveal(c, 0)
	whole.Call(c)
	published := *whole.Deal.View().CertificateID
	key, pids := c.Key(), map[string]int{}
	for _, name := range stack.Names() {
		pids[name] = stack.PID(name)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*e2e.DefaultTimeout)
	defer cancel()
	s := e2e.StartStream(ctx, t, stack, c)
	e2e.Must(t, s.Passes(ctx, 100))
	e2e.Must(t, stack.Postgres().Stop())
	unavailable := func(method, path, token string, sent any, header ...string) {
		t.Helper()
		a := c.Do(method, path, token, sent, header...)
		if a.Status != 503 || a.Code() != "UNAVAILABLE" && a.Code() != "LOG_UNAVAILABLE" {
			t.Errorf("%s %s without Postgres: %d %s, want 503", method, path, a.Status, a.Body)
		}
		retrySoon(t, a)
	}
	unavailable("POST", "/v1/keys", "", nil)
	unavailable("POST", "/v1/deals", key, e2e.SplitBody(time.Hour, 2*time.Hour), "Idempotency-Key", "outage")
	unavailable("GET", half.Deal.Path(""), half.Deal.Tokens[0], nil)
	unavailable("POST", half.Deal.Path("/reveal"), half.Last.Token, half.Last.Body)
	unavailable("POST", half.Deal.Path("/commit"), half.Deal.Tokens[0], e2e.Body{"commitment": half.Inputs[0].Commitment})
	unavailable("POST", half.Deal.Path("/cancel"), half.Deal.Key, nil)
	unavailable("GET", whole.Deal.Path("/certificate"), whole.Deal.Tokens[0], nil)
	unavailable("GET", "/v1/verify/"+published, "", nil)
	unavailable("GET", "/v1/log/tree-head", "", nil)
	c.Want(200, "GET", "/v1/status", "", nil)
	c.Want(200, "GET", "/v1/algorithms", "", nil)
	for _, page := range []string{"/", "/openapi.json", "/llms.txt", "/trust"} {
		if a := c.Do("GET", page, "", nil); a.Status != 200 {
			t.Errorf("GET %s without Postgres: %d, want 200", page, a.Status)
		}
	}
	for _, name := range stack.Names() {
		admin := e2e.NewClient(t, stack.AdminURL(name))
		if a := admin.Do("GET", "/readyz", "", nil); a.Status != 200 || !strings.Contains(string(a.Body), "the database does not answer") {
			t.Errorf("/readyz of %s without Postgres: %d %s", name, a.Status, a.Body)
		}
		e2e.Eventually(t, name+" measures the outage", e2e.DefaultTimeout, func() bool {
			return strings.Contains(string(admin.Do("GET", "/metrics", "", nil).Body), "\nfairpact_database_up 0\n")
		})
	}
	e2e.Must(t, stack.Postgres().Restart(t.Context()))

	e2e.Eventually(t, "all answer again", e2e.DefaultTimeout, func() bool {
		return c.Do("GET", "/v1/log/tree-head", "", nil).Status == 200 && c.Do("GET", half.Deal.Path(""), half.Deal.Tokens[0], nil).Status == 200
	})
	e2e.Must(t, s.Passes(ctx, 100))
	lastCall(t, c, half)
	for _, x := range []*e2e.UnfinishedDeal{half, whole} {
		x.Recomputed(t, c, x.Deal.Certified(e2e.DefaultTimeout))
	}
	c.Want(201, "POST", "/v1/deals", key, e2e.SplitBody(time.Hour, 2*time.Hour), "Idempotency-Key", "outage")
	missed := e2e.Played(t, c, e2e.MissedCommit)
	w := e2e.OpenDB(t, stack)
	e2e.Eventually(t, "the worker voids", e2e.DefaultTimeout, func() bool { return w.Phase(missed.Deal) == "VOID" })
	s.End(t, stack)
	for _, name := range stack.Names() {
		admin := e2e.NewClient(t, stack.AdminURL(name))
		e2e.Eventually(t, name+" no longer reports the outage", e2e.DefaultTimeout, func() bool {
			return string(admin.Do("GET", "/readyz", "", nil).Body) == "ok\n" &&
				strings.Contains(string(admin.Do("GET", "/metrics", "", nil).Body), "\nfairpact_database_up 1\n")
		})
	}
	for name, pid := range pids {
		select {
		case <-stack.Ended(name):
			t.Errorf("%s has ended, want it to run", name)
		default:
			if stack.PID(name) != pid {
				t.Errorf("%s was restarted: its process is now %d, want %d", name, stack.PID(name), pid)
			}
		}
	}
}

func retrySoon(t *testing.T, a e2e.Answer) {
	t.Helper()
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || seconds < 1 || seconds > 60 {
		t.Errorf("%d %.300s: Retry-After %q, want 1 to 60", a.Status, a.Body, a.Header.Get("Retry-After"))
	}
}
