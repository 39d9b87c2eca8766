package e2e

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/localstack"
)

// pending requires what a party sees of a deal that has ended while its
// certificate cannot be issued.
func pending(t *testing.T, w witness, d *dealt, state, reason string) (certID string) {
	t.Helper()
	v := d.view()
	if v.State != state || v.CertificateID != nil || (string(v.Result) != "null") != (state == "COMPUTED") {
		t.Errorf("view: %+v, want %s without a certificate", v, state)
	}
	a := d.c.refused(409, "CERT_NOT_READY", "GET", d.path("/certificate"), d.Tokens[0], nil)
	if !strings.Contains(a.errorText(), reason) || a.header.Get("Retry-After") == "" {
		t.Errorf("the certificate is pending: %s, Retry-After %q", a.body, a.header.Get("Retry-After"))
	}
	certID = value[string](w, "SELECT cert_id FROM certificates WHERE deal_id = $1 AND leaf_index IS NULL", d.ID)
	d.c.refused(404, "CERT_NOT_FOUND", "GET", "/v1/verify/"+certID, "", nil)
	return certID
}

// With the log out of reach deals go on and end; certificates follow when it is
// back, by the worker alone.
func TestLogServerDown(t *testing.T) {
	t.Parallel()
	stack := own(t, nil)
	c, w := newClient(t, stack.BaseURL()), database(t, stack)
	before := lastReveal(c, 0)
	before.call(c)
	published := *before.deal.view().CertificateID
	if !c.verify(published).Valid {
		t.Fatal("not valid before the outage")
	}

	if err := stack.Stop(localstack.LogServer); err != nil {
		t.Fatal(err)
	}
	// SPEC 4: a verdict is never given without the log.
	for _, path := range []string{"/v1/verify/" + published, "/v1/log/tree-head"} {
		a := c.refused(503, "LOG_UNAVAILABLE", "GET", path, "", nil)
		if a.header.Get("Retry-After") == "" || strings.Contains(string(a.body), `"valid"`) {
			t.Errorf("%s without the log: %v %s", path, a.header, a.body)
		}
	}
	c.refused(503, "LOG_UNAVAILABLE", "GET", before.deal.path("/certificate"), before.deal.Tokens[0], nil)
	c.refused(404, "CERT_NOT_FOUND", "GET", "/v1/verify/c_unknown", "", nil)
	if _, said := newCtl(t, stack.BaseURL()).run(1, "smoke", "--timeout", "2s"); !strings.Contains(said, "no verified certificate within 2s") ||
		!strings.Contains(said, "CERT_NOT_READY") || !strings.Contains(said, "log") {
		t.Errorf("fairpactctl smoke without the log says %q", said)
	}

	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	var all []*cut
	for _, play := range []scenario{lastReveal, rejection, draw(past), missedCommit} {
		x := played(t, c, play)
		if x.clock {
			waitUntil(t, x.from)
		}
		a, err := x.call(c)
		if err != nil || a.status != 200 {
			t.Fatalf("the last call: %v, %d %s", err, a.status, a.body)
		}
		var told struct {
			State         string
			CertificateID *string `json:"certificate_id"`
		}
		a.into(t, &told)
		if told.State != x.outcome || told.CertificateID != nil {
			t.Errorf("the last call: %s, want %s", a.body, x.outcome)
		}
		pending(t, w, x.deal, x.outcome, "transparency log is out of reach")
		all = append(all, x)
	}

	if err := stack.Start(t.Context(), localstack.LogServer); err != nil {
		t.Fatal(err)
	}
	w.converged() // nobody calls
	for _, x := range all {
		v := x.deal.view()
		if v.CertificateID == nil || !c.verify(*v.CertificateID).Valid {
			t.Errorf("not valid after the outage: %+v", v)
		}
		x.recomputed(t, c, x.deal.certified(0))
	}
	if !c.verify(published).Valid {
		t.Error("not valid after the outage")
	}
	invariants(t, stack)
}

// played plays a deal with as much time as the machine needs.
func played(t *testing.T, c *client, play scenario) *cut {
	t.Helper()
	for lead := time.Second; lead < patience; lead *= 2 {
		if x := play(c, lead); x != nil {
			return x
		}
	}
	t.Fatal("no deal can be made before its deadline")
	return nil
}

// A log-server that takes connections and answers nothing holds nobody up for as
// long as clients and proxies commonly wait.
func TestLogServerHangs(t *testing.T) {
	t.Parallel()
	stack := own(t, nil)
	c, w := newClient(t, stack.BaseURL()), database(t, stack)
	before := lastReveal(c, 0)
	before.call(c)
	published := *before.deal.view().CertificateID
	x := lastReveal(c, 0)

	log := stack.PID(localstack.LogServer)
	if err := syscall.Kill(log, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(log, syscall.SIGCONT) })
	a, err := x.call(c)
	if err != nil || a.status != 200 {
		t.Fatalf("the last reveal: %v, %d %s", err, a.status, a.body)
	}
	var calls sync.WaitGroup
	calls.Go(func() { pending(t, w, x.deal, "COMPUTED", "transparency log is out of reach") })
	for _, path := range []string{"/v1/verify/" + published, "/v1/log/tree-head", before.deal.path("/certificate")} {
		calls.Go(func() {
			begin := time.Now()
			c.refused(503, "LOG_UNAVAILABLE", "GET", path, before.deal.Tokens[0], nil)
			if took := time.Since(begin); took > 25*time.Second {
				t.Errorf("%s was answered after %s", path, took)
			}
		})
	}
	calls.Wait()
	if err := syscall.Kill(log, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.converged()
	x.recomputed(t, c, x.deal.certified(0))
	invariants(t, stack)
}

// SPEC 4 rule 4: the certificate is issued in the flow of the last reveal; the
// worker has no part in it.
func TestWorkerDown(t *testing.T) {
	t.Parallel()
	stack := own(t, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DeadlineWorker: 0} })
	c := newClient(t, stack.BaseURL())
	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	for _, play := range []scenario{lastReveal, rejection, draw(past), missedReveal} {
		x := played(t, c, play)
		if x.clock {
			waitUntil(t, x.from)
		}
		if a, err := x.call(c); err != nil || a.status != 200 {
			t.Fatalf("the last call: %v, %d %s", err, a.status, a.body)
		}
		if v := x.deal.view(); v.State != x.outcome || v.CertificateID == nil {
			t.Errorf("after the last call: %+v", v)
		}
		x.recomputed(t, c, x.deal.certified(0))
	}
	invariants(t, stack)
}

// Postgres goes and comes back under load: every answer in between is a 503 that
// says when to come again, nothing accepted is lost, nothing is done twice, and
// no binary has to be started anew.
func TestPostgresDown(t *testing.T) {
	t.Parallel()
	stack := own(t, nil)
	c := newClient(t, stack.BaseURL())
	whole, half := lastReveal(c, 0), lastReveal(c, 0)
	whole.call(c)
	published := *whole.deal.view().CertificateID
	key, pids := c.key(), map[string]int{}
	for _, name := range stack.Names() {
		pids[name] = stack.PID(name)
	}

	// A stream of deals, each request sent again until it is answered.
	s := &stubborn{doors: []*client{c}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var stream sync.WaitGroup
	var mu sync.Mutex
	var all []*soaked
	over := make(chan struct{})
	for range 4 {
		stream.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				d := &soaked{t: t, s: s, ctx: ctx}
				if err := d.play(0); err != nil {
					t.Errorf("deal %s: %v", d.id, err)
				}
				mu.Lock()
				all = append(all, d)
				mu.Unlock()
			}
		})
	}
	if err := s.passes(ctx, 100); err != nil {
		t.Fatal(err)
	}
	if err := stack.Postgres().Stop(); err != nil {
		t.Fatal(err)
	}
	out(t, c, "POST", "/v1/keys", "", nil)
	out(t, c, "POST", "/v1/deals", key, splitBody(time.Hour, 2*time.Hour), "Idempotency-Key", "outage")
	out(t, c, "GET", half.deal.path(""), half.deal.Tokens[0], nil)
	out(t, c, "POST", half.deal.path("/reveal"), half.last.token, half.last.body)
	out(t, c, "POST", half.deal.path("/commit"), half.deal.Tokens[0], body{"commitment": half.inputs[0].Commitment})
	out(t, c, "POST", half.deal.path("/cancel"), half.deal.Key, nil)
	out(t, c, "GET", whole.deal.path("/certificate"), whole.deal.Tokens[0], nil)
	out(t, c, "GET", "/v1/verify/"+published, "", nil)
	out(t, c, "GET", "/v1/log/tree-head", "", nil)
	c.want(200, "GET", "/v1/status", "", nil)
	c.want(200, "GET", "/v1/algorithms", "", nil)
	if err := stack.Postgres().Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	eventually(t, "all answer again", patience, func() bool {
		return c.do("GET", "/v1/log/tree-head", "", nil).status == 200 && c.do("GET", half.deal.path(""), half.deal.Tokens[0], nil).status == 200
	})
	if err := s.passes(ctx, 100); err != nil {
		t.Fatal(err)
	}
	close(over)
	stream.Wait()
	if a, err := half.call(c); err != nil || a.status != 200 {
		t.Errorf("the last reveal after the outage: %v, %d %s", err, a.status, a.body)
	}
	for _, x := range []*cut{half, whole} {
		x.recomputed(t, c, x.deal.certified(patience))
	}
	c.want(201, "POST", "/v1/deals", key, splitBody(time.Hour, 2*time.Hour), "Idempotency-Key", "outage")
	// The worker has no port that shows it; a deadline does.
	missed := played(t, c, missedCommit)
	w := database(t, stack)
	eventually(t, "the worker voids", patience, func() bool { return w.phase(missed.deal) == "VOID" })
	w.converged()
	invariants(t, stack)
	for _, d := range all {
		if err := d.ended(); err != nil {
			t.Errorf("deal %s: %v", d.id, err)
		}
	}
	for name, pid := range pids {
		select {
		case <-stack.Ended(name):
			t.Errorf("%s has ended", name)
		default:
			if stack.PID(name) != pid {
				t.Errorf("%s was started anew", name)
			}
		}
	}
}

// out requires a 503 that says when to come again.
func out(t *testing.T, c *client, method, path, token string, sent any, header ...string) {
	t.Helper()
	a := c.do(method, path, token, sent, header...)
	if a.status != 503 || a.code() != "UNAVAILABLE" && a.code() != "LOG_UNAVAILABLE" {
		t.Errorf("%s %s without Postgres: %d %s", method, path, a.status, a.body)
	}
	if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || seconds < 1 || seconds > 60 {
		t.Errorf("%s %s without Postgres: Retry-After %q", method, path, a.header.Get("Retry-After"))
	}
}
