package e2e

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/localstack"
)

// after is a deadline at least d away.
func after(d time.Duration) int64 { return time.Now().Add(d + time.Second - 1).Unix() }

func timed(b body, commitDeadline, revealDeadline int64) body {
	b["commit_deadline"], b["reveal_deadline"] = commitDeadline, revealDeadline
	return b
}

var threeItems = body{"valuations": body{"car": 2, "boat": 1}}

// trio is a split of three parties with the given deadlines.
func (c *client) trio(key string, commitDeadline, revealDeadline int64) *dealt {
	c.t.Helper()
	b := timed(splitBody(0, 0), commitDeadline, revealDeadline)
	b["party_labels"] = []string{"ann", "bob", "cem"}
	return c.createWith(key, b)
}

// act is the body of a commit or a reveal.
func (s sealed) act(action string) body {
	if action == "commit" {
		return body{"commitment": s.Commitment}
	}
	return body{"input": s.Input, "salt": s.Salt}
}

// attempt sends a commit or reveal that may come late, and tells whether it was
// accepted. SPEC 3: a missed deadline is the only other answer.
func (d *dealt) attempt(action string, party int, b body) bool {
	d.c.t.Helper()
	a := d.c.do("POST", d.path("/"+action), d.Tokens[party], b)
	if a.status != 200 && (a.status != 409 || a.code() != "DEADLINE_PASSED") {
		d.c.t.Fatalf("%s of party %d: %d %s", action, party, a.status, a.body)
	}
	return a.status == 200
}

// SPEC 1.4, 3: a missed deadline makes the deal VOID, and its certificate names
// exactly those who failed to act; the worker has it published and verifiable
// within a second of the deadline, though nobody asks for the deal.
func TestDeadlineVoids(t *testing.T) {
	const tries = 3
	c := newClient(t, baseURL(t))
	w := database(t, shared(t))
	key := c.key()
	for name, play := range map[string]struct{ commits, reveals []int }{
		"nobody commits":    {nil, nil},
		"some commit":       {[]int{1}, nil},
		"nobody reveals":    {[]int{0, 1, 2}, nil},
		"all but one":       {[]int{0, 1, 2}, []int{0, 2}},
		"the initiator not": {[]int{1, 2}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for try := 1; ; try++ {
				took, asPlanned := missedDeadline(t, c, w, key, play.commits, play.reveals)
				if asPlanned && took <= time.Second {
					return
				}
				if try == tries {
					t.Fatalf("in none of %d tries was the certificate verified within a second of the deadline; the last took %s (in time to play: %v)", tries, took, asPlanned)
				}
			}
		})
	}
}

// missedDeadline plays a deal to its VOID and gives how long after the deadline
// its certificate was verified, the independent verifier included. The flakers
// are those whose calls were not acknowledged, also where this machine was too
// slow to play as planned.
func missedDeadline(t *testing.T, c *client, w witness, key string, commits, reveals []int) (took time.Duration, asPlanned bool) {
	t.Helper()
	deadline := after(2 * time.Second)
	d := c.trio(key, deadline, deadline+60)
	if len(commits) == 3 {
		d = c.trio(key, deadline-1, deadline)
	}
	s := seal(t, threeItems)
	acted := map[string][]int{}
	for _, p := range commits {
		if d.attempt("commit", p, s.act("commit")) {
			acted["commit"] = append(acted["commit"], p)
		}
	}
	if asPlanned = len(acted["commit"]) == len(commits); asPlanned {
		for _, p := range reveals {
			if d.attempt("reveal", p, s.act("reveal")) {
				acted["reveal"] = append(acted["reveal"], p)
			}
		}
		asPlanned = len(acted["reveal"]) == len(reveals)
	}
	stage := "commit"
	if len(acted["commit"]) == 3 {
		stage = "reveal"
	}
	var flakers []int
	for p := range 3 {
		if !slices.Contains(acted[stage], p) {
			flakers = append(flakers, p)
		}
	}

	// The database is asked, as any call on the deal would void it by itself.
	var certID string
	eventually(t, "the worker publishes the certificate", patience, func() bool {
		certID = value[string](w, "SELECT coalesce(max(cert_id), '') FROM certificates WHERE deal_id = $1 AND leaf_index IS NOT NULL", d.ID)
		return certID != ""
	})
	if r := c.verify(certID); !r.Valid || r.Outcome != "VOID" {
		t.Errorf("verification: %+v", r)
	}
	verified := time.Since(time.Unix(deadline, 0))
	certificate := d.certified(0)
	independently(t, c, certificate, true)
	took = time.Since(time.Unix(deadline, 0))
	t.Logf("verified %s after the deadline, by the independent verifier %s", verified.Round(time.Millisecond), took.Round(time.Millisecond))

	v := d.view()
	if v.State != "VOID" || !slices.Equal(v.VoidFlakers, flakers) || string(v.Result) != "null" || v.CertificateID == nil || *v.CertificateID != certID {
		t.Errorf("view: %+v; the flakers are %v", v, flakers)
	}
	var named struct {
		Outcome     string
		VoidFlakers []int `json:"void_flakers"`
	}
	answer{body: certificate}.into(t, &named)
	if named.Outcome != "VOID" || !slices.Equal(named.VoidFlakers, flakers) {
		t.Errorf("certificate: %+v; the flakers are %v", named, flakers)
	}
	c.refused(409, "DEADLINE_PASSED", "POST", d.path("/"+stage), d.Tokens[flakers[0]], s.act(stage))
	return took, asPlanned
}

// The deadline decides, not the worker: the first call that meets an overdue
// deal voids it and then answers.
func TestOverdueDealIsVoidedByTheCallThatMeetsIt(t *testing.T) {
	t.Parallel()
	stack := own(t, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DeadlineWorker: 0} })
	for _, missed := range []struct {
		stage   string
		flakers []int
	}{{"commit", []int{1, 2}}, {"reveal", []int{0, 1, 2}}} {
		for name, call := range map[string]func(d *dealt, s sealed){
			"view": func(*dealt, sealed) {},
			missed.stage: func(d *dealt, s sealed) {
				d.c.refused(409, "DEADLINE_PASSED", "POST", d.path("/"+missed.stage), d.Tokens[1], s.act(missed.stage))
			},
			"cancel":      func(d *dealt, _ sealed) { d.c.refused(409, "CANNOT_CANCEL", "POST", d.path("/cancel"), d.Key, nil) },
			"certificate": func(d *dealt, _ sealed) { d.c.want(200, "GET", d.path("/certificate"), d.Tokens[0], nil) },
		} {
			t.Run(name+" at a missed "+missed.stage, func(t *testing.T) {
				t.Parallel()
				c, w := newClient(t, stack.BaseURL()), database(t, stack)
				d, s := overdue(t, c, w, missed.stage)
				if phase := w.phase(d); phase != "COMMITTING" && phase != "REVEALING" {
					t.Errorf("the deal is %s before the call", phase)
				}
				call(d, s)
				if name != "view" && w.phase(d) != "VOID" {
					t.Errorf("the call left the deal %s", w.phase(d))
				}
				v := d.view()
				if v.State != "VOID" || !slices.Equal(v.VoidFlakers, missed.flakers) || v.CertificateID == nil {
					t.Fatalf("%+v, want VOID by %v", v, missed.flakers)
				}
				if r := c.verify(*v.CertificateID); !r.Valid || r.Outcome != "VOID" {
					t.Errorf("verification: %+v", r)
				}
			})
		}
	}
}

// overdue is a deal whose deadline has passed: party 0 alone has committed, or
// all have and none revealed.
func overdue(t testing.TB, c *client, w witness, stage string) (*dealt, sealed) {
	t.Helper()
	key, s := c.key(), seal(t, threeItems)
	for lead := 3 * time.Second; ; lead *= 2 {
		deadline := after(lead)
		d, committers := c.trio(key, deadline, deadline+60), 1
		if stage == "reveal" {
			d, committers = c.trio(key, deadline-1, deadline), 3
		}
		inTime := true
		for p := range committers {
			inTime = inTime && d.attempt("commit", p, s.act("commit"))
		}
		if inTime {
			w.pass(deadline)
			return d, s
		}
	}
}

// However many workers and callers meet a deadline, it has one certificate.
func TestManyMeetOneDeadline(t *testing.T) {
	t.Parallel()
	stack := own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DeadlineWorker: 2, localstack.DealAPI: 2}
	})
	c, w := newClient(t, stack.BaseURL()), database(t, stack)
	second := newClient(t, stack.URL("deal-api-2"))
	key := c.key()
	deadline := after(3 * time.Second)
	const deals = 12
	var all []*dealt
	for range deals {
		all = append(all, c.trio(key, deadline, deadline+60))
	}
	w.pass(deadline)
	var group sync.WaitGroup
	for _, d := range all {
		for _, caller := range []*client{c, second, c, second} {
			group.Go(func() {
				if a, err := caller.try(t.Context(), "GET", d.path(""), d.Tokens[0], nil); err != nil || a.status != 200 {
					t.Errorf("view: %d %s %v", a.status, a.body, err)
				}
			})
		}
	}
	group.Wait()
	w.exactly(deals, deals)
	for _, d := range all {
		if v := d.view(); v.State != "VOID" || !slices.Equal(v.VoidFlakers, []int{0, 1, 2}) {
			t.Errorf("%+v, want VOID by all", v)
		}
	}
}
