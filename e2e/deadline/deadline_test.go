package deadline

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

var threeItems = e2e.Body{"valuations": e2e.Body{"car": 2, "boat": 1}}

// SPEC 1.4, 3: a missed deadline makes the deal VOID, and its certificate names
// exactly those who failed to act. The worker publishes it though nobody asks
// for the deal. How soon is logged: it is a second where the machine is idle.
func TestMissedDeadlineVoidsAndNamesTheFlakers(t *testing.T) {
	c := e2e.NewClient(t, e2e.BaseURL(t))
	key := c.Key()
	for name, play := range map[string]struct{ commits, reveals []int }{
		"nobody commits":    {nil, nil},
		"some commit":       {[]int{1}, nil},
		"nobody reveals":    {[]int{0, 1, 2}, nil},
		"all but one":       {[]int{0, 1, 2}, []int{0, 2}},
		"the initiator not": {[]int{1, 2}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here := e2e.NewClient(t, c.Base)
			for lead := 2 * time.Second; !missedDeadline(t, here, e2e.Database(t, e2e.Shared(t)), key, lead, play.commits, play.reveals); lead *= 2 {
				t.Logf("too slow to play it within %s", lead)
			}
		})
	}
}

// missedDeadline plays a deal to its VOID. It reports whether the machine was
// fast enough to play as planned before the deadline; the flakers are those
// whose calls were not acknowledged, in either case.
func missedDeadline(t *testing.T, c *e2e.Client, w e2e.Witness, key string, lead time.Duration, commits, reveals []int) (asPlanned bool) {
	t.Helper()
	deadline := e2e.After(lead)
	commitBy, revealBy := deadline, deadline+60
	if len(commits) == 3 {
		commitBy, revealBy = deadline-1, deadline
	}
	d := c.Trio(key, commitBy, revealBy)
	if d == nil {
		return false
	}
	s := e2e.Seal(t, threeItems)
	acted := map[string][]int{}
	for _, p := range commits {
		if d.Attempt("commit", p, s.Act("commit")) {
			acted["commit"] = append(acted["commit"], p)
		}
	}
	if asPlanned = len(acted["commit"]) == len(commits); asPlanned {
		for _, p := range reveals {
			if d.Attempt("reveal", p, s.Act("reveal")) {
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
	e2e.Eventually(t, "the worker publishes the certificate", e2e.Patience, func() bool {
		certID = w.Published(d.ID)
		return certID != ""
	})
	if r := c.Verify(certID); !r.Valid || r.Outcome != "VOID" {
		t.Errorf("verification: %+v", r)
	}
	verified := time.Since(time.Unix(deadline, 0))
	certificate := d.Certified(0)
	e2e.Independently(t, c, certificate, true)
	t.Logf("verified %s after the deadline", verified.Round(time.Millisecond))

	v := d.View()
	if v.State != "VOID" || !slices.Equal(v.VoidFlakers, flakers) || string(v.Result) != "null" || v.CertificateID == nil || *v.CertificateID != certID {
		t.Errorf("view: %+v; the flakers are %v", v, flakers)
	}
	var named struct {
		Outcome     string
		VoidFlakers []int `json:"void_flakers"`
	}
	e2e.Answer{Body: certificate}.Into(t, &named)
	if named.Outcome != "VOID" || !slices.Equal(named.VoidFlakers, flakers) {
		t.Errorf("certificate: %+v; the flakers are %v", named, flakers)
	}
	c.Refused(409, "DEADLINE_PASSED", "POST", d.Path("/"+stage), d.Tokens[flakers[0]], s.Act(stage))
	return asPlanned
}

// The deadline decides, not the worker: the first call that meets an overdue
// deal voids it and then answers.
func TestOverdueDealIsVoidedByTheCallThatMeetsIt(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DeadlineWorker: 0} })
	for _, missed := range []struct {
		stage   string
		flakers []int
	}{{"commit", []int{1, 2}}, {"reveal", []int{0, 1, 2}}} {
		for name, call := range map[string]func(d *e2e.Dealt, s e2e.Sealed){
			"view": func(*e2e.Dealt, e2e.Sealed) {},
			missed.stage: func(d *e2e.Dealt, s e2e.Sealed) {
				d.C.Refused(409, "DEADLINE_PASSED", "POST", d.Path("/"+missed.stage), d.Tokens[1], s.Act(missed.stage))
			},
			"cancel": func(d *e2e.Dealt, _ e2e.Sealed) {
				d.C.Refused(409, "CANNOT_CANCEL", "POST", d.Path("/cancel"), d.Key, nil)
			},
			"certificate": func(d *e2e.Dealt, _ e2e.Sealed) { d.C.Want(200, "GET", d.Path("/certificate"), d.Tokens[0], nil) },
		} {
			t.Run(name+" at a missed "+missed.stage, func(t *testing.T) {
				t.Parallel()
				c, w := e2e.NewClient(t, stack.BaseURL()), e2e.Database(t, stack)
				d, s := overdue(t, c, w, missed.stage)
				if phase := w.Phase(d); phase != "COMMITTING" && phase != "REVEALING" {
					t.Errorf("the deal is %s before the call", phase)
				}
				call(d, s)
				if name != "view" && w.Phase(d) != "VOID" {
					t.Errorf("the call left the deal %s", w.Phase(d))
				}
				v := d.View()
				if v.State != "VOID" || !slices.Equal(v.VoidFlakers, missed.flakers) || v.CertificateID == nil {
					t.Fatalf("%+v, want VOID by %v", v, missed.flakers)
				}
				if r := c.Verify(*v.CertificateID); !r.Valid || r.Outcome != "VOID" {
					t.Errorf("verification: %+v", r)
				}
			})
		}
	}
}

// overdue is a deal whose deadline has passed: party 0 alone has committed, or
// all have and none revealed.
func overdue(t testing.TB, c *e2e.Client, w e2e.Witness, stage string) (*e2e.Dealt, e2e.Sealed) {
	t.Helper()
	key, s := c.Key(), e2e.Seal(t, threeItems)
	for lead := 3 * time.Second; ; lead *= 2 {
		deadline := e2e.After(lead)
		d, committers := c.Trio(key, deadline, deadline+60), 1
		if stage == "reveal" {
			d, committers = c.Trio(key, deadline-1, deadline), 3
		}
		inTime := d != nil
		for p := range committers {
			inTime = inTime && d.Attempt("commit", p, s.Act("commit"))
		}
		if inTime {
			w.Pass(deadline)
			return d, s
		}
	}
}

// However many workers and callers meet a deadline, it has one certificate.
func TestManyMeetOneDeadline(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DeadlineWorker: 2, localstack.DealAPI: 2}
	})
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.Database(t, stack)
	second := e2e.NewClient(t, stack.URL("deal-api-2"))
	key := c.Key()
	var deadline int64
	var all []*e2e.Dealt
	for lead := 3 * time.Second; len(all) == 0; lead *= 2 {
		deadline = e2e.After(lead)
		for len(all) < 12 {
			d := c.Trio(key, deadline, deadline+60)
			if d == nil {
				break // this machine is too slow for more
			}
			all = append(all, d)
		}
	}
	w.Pass(deadline)
	var group sync.WaitGroup
	for _, d := range all {
		for _, caller := range []*e2e.Client{c, second, c, second} {
			group.Go(func() {
				if a, err := caller.Try(t.Context(), "GET", d.Path(""), d.Tokens[0], nil); err != nil || a.Status != 200 {
					t.Errorf("view: %d %s %v", a.Status, a.Body, err)
				}
			})
		}
	}
	group.Wait()
	w.Exactly(int64(len(all)), int64(len(all)))
	for _, d := range all {
		if v := d.View(); v.State != "VOID" || !slices.Equal(v.VoidFlakers, []int{0, 1, 2}) {
			t.Errorf("%+v, want VOID by all", v)
		}
	}
}
