package outage

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// pending requires what a party sees of a deal that has ended while its
// certificate cannot be issued.
func pending(t *testing.T, w e2e.Witness, d *e2e.Dealt, state, reason string) (certID string) {
	t.Helper()
	v := d.View()
	if v.State != state || v.CertificateID != nil || (string(v.Result) != "null") != (state == "COMPUTED") {
		t.Errorf("view: %+v, want %s without a certificate", v, state)
	}
	a := d.C.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate"), d.Tokens[0], nil)
	if !strings.Contains(a.ErrorText(), reason) || a.Header.Get("Retry-After") == "" {
		t.Errorf("the certificate is pending: %s, Retry-After %q", a.Body, a.Header.Get("Retry-After"))
	}
	certID = e2e.Value[string](w, "SELECT cert_id FROM certificates WHERE deal_id = $1 AND leaf_index IS NULL", d.ID)
	d.C.Refused(404, "CERT_NOT_FOUND", "GET", "/v1/verify/"+certID, "", nil)
	return certID
}

// With the log out of reach deals go on and end; certificates follow when it is
// back, by the worker alone.
func TestLogServerDown(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, nil)
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.Database(t, stack)
	before := e2e.LastReveal(c, 0)
	before.Call(c)
	published := *before.Deal.View().CertificateID
	if !c.Verify(published).Valid {
		t.Fatal("not valid before the outage")
	}

	if err := stack.Stop(localstack.LogServer); err != nil {
		t.Fatal(err)
	}
	// SPEC 4: a verdict is never given without the log.
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
		t.Errorf("fairpactctl smoke without the log says %q", said)
	}

	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	var all []*e2e.Cut
	for _, play := range []e2e.Scenario{e2e.LastReveal, e2e.Rejection, e2e.Draw(past), e2e.MissedCommit} {
		x := e2e.Played(t, c, play)
		if x.Clock {
			e2e.WaitUntil(t, x.From)
		}
		a, err := x.Call(c)
		if err != nil || a.Status != 200 {
			t.Fatalf("the last call: %v, %d %s", err, a.Status, a.Body)
		}
		var told struct {
			State         string
			CertificateID *string `json:"certificate_id"`
		}
		a.Into(t, &told)
		if told.State != x.Outcome || told.CertificateID != nil {
			t.Errorf("the last call: %s, want %s", a.Body, x.Outcome)
		}
		pending(t, w, x.Deal, x.Outcome, "transparency log is out of reach")
		all = append(all, x)
	}

	if err := stack.Start(t.Context(), localstack.LogServer); err != nil {
		t.Fatal(err)
	}
	w.Converged() // nobody calls
	for _, x := range all {
		v := x.Deal.View()
		if v.CertificateID == nil || !c.Verify(*v.CertificateID).Valid {
			t.Errorf("not valid after the outage: %+v", v)
		}
		x.Recomputed(t, c, x.Deal.Certified(0))
	}
	if !c.Verify(published).Valid {
		t.Error("not valid after the outage")
	}
	e2e.Invariants(t, stack)
}

// A log-server that takes connections and answers nothing holds nobody up for
// longer than the client here waits, a minute.
func TestLogServerHangs(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, nil)
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.Database(t, stack)
	before := e2e.LastReveal(c, 0)
	before.Call(c)
	published := *before.Deal.View().CertificateID
	x := e2e.LastReveal(c, 0)

	log := stack.PID(localstack.LogServer)
	if err := syscall.Kill(log, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(log, syscall.SIGCONT) })
	a, err := x.Call(c)
	if err != nil || a.Status != 200 {
		t.Fatalf("the last reveal: %v, %d %s", err, a.Status, a.Body)
	}
	var calls sync.WaitGroup
	calls.Go(func() { pending(t, w, x.Deal, "COMPUTED", "transparency log is out of reach") })
	for _, path := range []string{"/v1/verify/" + published, "/v1/log/tree-head", before.Deal.Path("/certificate")} {
		calls.Go(func() {
			c.Refused(503, "LOG_UNAVAILABLE", "GET", path, before.Deal.Tokens[0], nil)
		})
	}
	calls.Wait()
	if err := syscall.Kill(log, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.Converged()
	x.Recomputed(t, c, x.Deal.Certified(0))
	e2e.Invariants(t, stack)
}

// SPEC 4 rule 4: the certificate is issued in the flow of the last reveal; the
// worker has no part in it.
func TestWorkerDown(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DeadlineWorker: 0} })
	c := e2e.NewClient(t, stack.BaseURL())
	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	for _, play := range []e2e.Scenario{e2e.LastReveal, e2e.Rejection, e2e.Draw(past), e2e.MissedReveal} {
		x := e2e.Played(t, c, play)
		if x.Clock {
			e2e.WaitUntil(t, x.From)
		}
		if a, err := x.Call(c); err != nil || a.Status != 200 {
			t.Fatalf("the last call: %v, %d %s", err, a.Status, a.Body)
		}
		if v := x.Deal.View(); v.State != x.Outcome || v.CertificateID == nil {
			t.Errorf("after the last call: %+v", v)
		}
		x.Recomputed(t, c, x.Deal.Certified(0))
	}
	e2e.Invariants(t, stack)
}

// Postgres goes and comes back under load: every answer in between is a 503 that
// says when to come again, nothing accepted is lost, nothing is done twice, and
// no binary has to be restarted.
func TestPostgresDown(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, nil)
	c := e2e.NewClient(t, stack.BaseURL())
	whole, half := e2e.LastReveal(c, 0), e2e.LastReveal(c, 0)
	whole.Call(c)
	published := *whole.Deal.View().CertificateID
	key, pids := c.Key(), map[string]int{}
	for _, name := range stack.Names() {
		pids[name] = stack.PID(name)
	}

	// A stream of deals, each request sent again until it is answered.
	s := &e2e.Stubborn{Doors: []*e2e.Client{c}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*e2e.Patience)
	defer cancel()
	var stream sync.WaitGroup
	var mu sync.Mutex
	var all []*e2e.Soaked
	over := make(chan struct{})
	for range 4 {
		stream.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				d := &e2e.Soaked{T: t, S: s, Ctx: ctx}
				if err := d.Play(0); err != nil {
					t.Errorf("deal %s: %v", d.Id, err)
				}
				mu.Lock()
				all = append(all, d)
				mu.Unlock()
			}
		})
	}
	if err := s.Passes(ctx, 100); err != nil {
		t.Fatal(err)
	}
	if err := stack.Postgres().Stop(); err != nil {
		t.Fatal(err)
	}
	out(t, c, "POST", "/v1/keys", "", nil)
	out(t, c, "POST", "/v1/deals", key, e2e.SplitBody(time.Hour, 2*time.Hour), "Idempotency-Key", "outage")
	out(t, c, "GET", half.Deal.Path(""), half.Deal.Tokens[0], nil)
	out(t, c, "POST", half.Deal.Path("/reveal"), half.Last.Token, half.Last.Body)
	out(t, c, "POST", half.Deal.Path("/commit"), half.Deal.Tokens[0], e2e.Body{"commitment": half.Inputs[0].Commitment})
	out(t, c, "POST", half.Deal.Path("/cancel"), half.Deal.Key, nil)
	out(t, c, "GET", whole.Deal.Path("/certificate"), whole.Deal.Tokens[0], nil)
	out(t, c, "GET", "/v1/verify/"+published, "", nil)
	out(t, c, "GET", "/v1/log/tree-head", "", nil)
	c.Want(200, "GET", "/v1/status", "", nil)
	c.Want(200, "GET", "/v1/algorithms", "", nil)
	for _, page := range []string{"/", "/openapi.json", "/llms.txt", "/trust"} {
		if a := c.Do("GET", page, "", nil); a.Status != 200 {
			t.Errorf("%s without Postgres: %d", page, a.Status)
		}
	}
	// All stay in their Services, and say why.
	for _, name := range stack.Names() {
		admin := e2e.NewClient(t, stack.AdminURL(name))
		if a := admin.Do("GET", "/readyz", "", nil); a.Status != 200 || !strings.Contains(string(a.Body), "the database does not answer") {
			t.Errorf("/readyz of %s without Postgres: %d %s", name, a.Status, a.Body)
		}
		e2e.Eventually(t, name+" measures the outage", e2e.Patience, func() bool {
			return strings.Contains(string(admin.Do("GET", "/metrics", "", nil).Body), "\nfairpact_database_up 0\n")
		})
	}
	if err := stack.Postgres().Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	e2e.Eventually(t, "all answer again", e2e.Patience, func() bool {
		return c.Do("GET", "/v1/log/tree-head", "", nil).Status == 200 && c.Do("GET", half.Deal.Path(""), half.Deal.Tokens[0], nil).Status == 200
	})
	if err := s.Passes(ctx, 100); err != nil {
		t.Fatal(err)
	}
	close(over)
	stream.Wait()
	if a, err := half.Call(c); err != nil || a.Status != 200 {
		t.Errorf("the last reveal after the outage: %v, %d %s", err, a.Status, a.Body)
	}
	for _, x := range []*e2e.Cut{half, whole} {
		x.Recomputed(t, c, x.Deal.Certified(e2e.Patience))
	}
	c.Want(201, "POST", "/v1/deals", key, e2e.SplitBody(time.Hour, 2*time.Hour), "Idempotency-Key", "outage")
	// The worker has no port that shows it; a deadline does.
	missed := e2e.Played(t, c, e2e.MissedCommit)
	w := e2e.Database(t, stack)
	e2e.Eventually(t, "the worker voids", e2e.Patience, func() bool { return w.Phase(missed.Deal) == "VOID" })
	w.Converged()
	for _, name := range stack.Names() {
		admin := e2e.NewClient(t, stack.AdminURL(name))
		e2e.Eventually(t, name+" is ready without reserve", e2e.Patience, func() bool {
			return string(admin.Do("GET", "/readyz", "", nil).Body) == "ok\n" &&
				strings.Contains(string(admin.Do("GET", "/metrics", "", nil).Body), "\nfairpact_database_up 1\n")
		})
	}
	e2e.Invariants(t, stack)
	for _, d := range all {
		if err := d.Ended(); err != nil {
			t.Errorf("deal %s: %v", d.Id, err)
		}
	}
	for name, pid := range pids {
		select {
		case <-stack.Ended(name):
			t.Errorf("%s has ended", name)
		default:
			if stack.PID(name) != pid {
				t.Errorf("%s was restarted", name)
			}
		}
	}
}

// out requires a 503 that says when to come again.
func out(t *testing.T, c *e2e.Client, method, path, token string, sent any, header ...string) {
	t.Helper()
	a := c.Do(method, path, token, sent, header...)
	if a.Status != 503 || a.Code() != "UNAVAILABLE" && a.Code() != "LOG_UNAVAILABLE" {
		t.Errorf("%s %s without Postgres: %d %s", method, path, a.Status, a.Body)
	}
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || seconds < 1 || seconds > 60 {
		t.Errorf("%s %s without Postgres: Retry-After %q", method, path, a.Header.Get("Retry-After"))
	}
}
