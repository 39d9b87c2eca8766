//go:build alerts

package alerts

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

// fault is something that goes wrong in a stack of its own, and the alert that
// is to tell of it.
type fault struct {
	alert string
	what  string
	// also are the alerts that may fire with it, and why the fault is theirs as
	// well; any other that fires is wrong.
	also map[string]string
	env  []string // of all binaries; {dir} is site.dir
	// witnesses is how many the stack has.
	witnesses int
	// do makes the fault, and gives what undoes it.
	do func(s *site) (undo func())
}

// site is the stack of a fault.
type site struct {
	t         *testing.T
	dir       string // of its own, empty
	stack     *localstack.Stack
	kms       *kmstest.GCP
	uri       string // of the key that signs
	c         *e2e.Client
	w         e2e.Witness
	p         *prometheus
	namespace string
}

// Every alert of the chart fires on a fault that it is for, in a real Prometheus
// that scrapes a real stack, with no other alert than those that the fault is of
// as well; and it ends with the fault. Durations are shortened (hastened).
func TestAlerts(t *testing.T) {
	p := startPrometheus(t)
	rules := p.rules(t)
	for _, rule := range rules {
		if !slices.ContainsFunc(faults, func(f fault) bool { return f.alert == rule.Name }) {
			t.Errorf("%s has no fault in the table: it was never seen to fire", rule.Name)
		}
	}
	t.Run("healthy", func(t *testing.T) {
		t.Parallel()
		healthy(t, p, rules)
	})
	for _, f := range faults {
		t.Run(f.alert+"/"+strings.ReplaceAll(f.what, " ", "-"), func(t *testing.T) {
			t.Parallel()
			s := siteOf(t, p, f)
			undo := f.do(s)
			began := time.Now()
			e2e.Eventually(t, f.alert+" fires", 3*e2e.Patience, func() bool { return slices.Contains(p.firing(t, s.namespace), f.alert) })
			took := time.Since(began)
			t.Logf("%s after %s: %s", f.alert, took.Round(time.Second/10), p.texts(t, s.namespace, f.alert))
			undo()
			began = time.Now()
			e2e.Eventually(t, f.alert+" ends", 3*e2e.Patience, func() bool { return !slices.Contains(p.firing(t, s.namespace), f.alert) })
			fired := p.fired(t, s.namespace)
			t.Logf("ended %s after the fault; fired: %v", time.Since(began).Round(time.Second/10), fired)
			for _, other := range fired {
				if other != f.alert && f.also[other] == "" {
					t.Errorf("%s fired too", other)
				}
			}
		})
	}
}

// siteOf starts the stack of a fault and sees that it is well.
func siteOf(t *testing.T, p *prometheus, f fault) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), kms: e2e.KeyService(t), p: p, namespace: strings.ToLower(strings.ReplaceAll(f.alert+"-"+f.what, " ", "-"))}
	s.stack = e2e.Own(t, func(o *localstack.Options) {
		s.uri = s.kms.URI(s.kms.NewKey())
		o.Env[""] = append(o.Env[""], "FAIRPACT_SIGNING_KEY="+s.uri)
		o.Witnesses = f.witnesses
		for _, setting := range f.env {
			o.Env[""] = append(o.Env[""], strings.ReplaceAll(setting, "{dir}", s.dir))
		}
	})
	s.c, s.w = e2e.NewClient(t, s.stack.BaseURL()), e2e.Database(t, s.stack)
	d := s.c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	d.Play(e2e.AnnsValues, e2e.BobsValues)
	d.Certified(e2e.Patience)
	p.watch(t, s.stack, s.namespace)
	e2e.Eventually(t, "Redis is seen", e2e.Patience, func() bool {
		return len(p.query(t, `fairpact_redis_up{namespace="`+s.namespace+`"} == 1`)) == 2
	})
	if fired := p.fired(t, s.namespace); len(fired) > 0 {
		t.Errorf("before the fault: %v", fired)
	}
	return s
}

// must fails the test at an error.
func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
