//go:build alerts

package alerts

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/kmstest"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// fault is a test case of TestAlerts: a fault in a stack of its own, and the alert that must fire.
type fault struct {
	alert string
	what  string
	// also maps each other alert that may fire to the reason.
	also map[string]string
	env  []string // settings of all binaries; {dir} and {log-key} are replaced by site.dir and the URI of site.logKey

	witnesses int
	do        func(s *site) (undo func())
}

type site struct {
	t         *testing.T
	dir       string
	stack     *localstack.Stack
	kms       *kmstest.GCP
	uri       string
	logKey    string // name of an Ed25519 key in kms
	c         *e2e.Client
	w         e2e.DB
	p         *prometheus
	namespace string
}

// Every alert of the chart fires during its fault and ends after the fault. The only other alerts that
// may fire are those in fault.also. A real Prometheus scrapes a real stack. The function hastened
// shortens the durations in the rules.
func TestAlerts(t *testing.T) {
	p := startPrometheus(t)
	rules := p.rules(t)
	for _, rule := range rules {
		if !slices.ContainsFunc(faults, func(f fault) bool { return f.alert == rule.Name }) {
			t.Errorf("%s has no fault in the table: add one", rule.Name)
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
			e2e.Eventually(t, f.alert+" fires", 3*e2e.DefaultTimeout, func() bool { return slices.Contains(p.firing(t, s.namespace), f.alert) })
			took := time.Since(began)
			t.Logf("%s after %s: %s", f.alert, took.Round(time.Second/10), p.texts(t, s.namespace, f.alert))
			undo()
			began = time.Now()
			e2e.Eventually(t, f.alert+" ends", 3*e2e.DefaultTimeout, func() bool { return !slices.Contains(p.firing(t, s.namespace), f.alert) })
			fired := p.fired(t, s.namespace)
			t.Logf("ended %s after the fault; fired: %v", time.Since(began).Round(time.Second/10), fired)
			for _, other := range fired {
				if other != f.alert && f.also[other] == "" {
					t.Errorf("%s fired with %s and is not in the fault's also", other, f.alert)
				}
			}
		})
	}
}

// siteOf starts a stack for the fault f, and requires that no alert fires before the fault.
func siteOf(t *testing.T, p *prometheus, f fault) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), kms: e2e.KeyService(t), p: p, namespace: strings.ToLower(strings.ReplaceAll(f.alert+"-"+f.what, " ", "-"))}
	s.stack = e2e.Own(t, func(o *localstack.Options) {
		s.uri, s.logKey = s.kms.URI(s.kms.NewKey()), s.kms.NewLogKey()
		o.Env[""] = append(o.Env[""], e2e.OneKey(t, s.uri))
		o.Witnesses = f.witnesses
		for _, setting := range f.env {
			o.Env[""] = append(o.Env[""], strings.NewReplacer("{dir}", s.dir, "{log-key}", s.kms.URI(s.logKey)).Replace(setting))
		}
	})
	s.c, s.w = e2e.NewClient(t, s.stack.BaseURL()), e2e.OpenDB(t, s.stack)
	d := s.c.ComputedDeal()
	d.Certified(e2e.DefaultTimeout)
	p.watch(t, s.stack, s.namespace)
	e2e.Eventually(t, "both users of Redis report it up", e2e.DefaultTimeout, func() bool {
		return len(p.query(t, `fairpact_redis_up{namespace="`+s.namespace+`"} == 1`)) == 2
	})
	if fired := p.fired(t, s.namespace); len(fired) > 0 {
		t.Errorf("alerts fired before the fault: %v", fired)
	}
	return s
}

// healthy requires that no alert fires on a healthy deployment under a light load. The queries of
// the dashboard and the selectors of the alerts must return data, except those for failed calls.
func healthy(t *testing.T, p *prometheus, rules []promv1.AlertingRule) {
	s := siteOf(t, p, fault{alert: "none", what: "all is well", env: []string{guardBeside}, witnesses: 2})
	stop := s.load(2)
	d, inTime := s.c.RevealedRandomDeal(s.stack.Chain(), e2e.After(time.Hour), e2e.After(2*time.Hour))
	if !inTime {
		t.Fatal("a two-party deal was not revealed within an hour")
	}
	s.c.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
	s.c.Want(200, "POST", "/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_algorithms","arguments":{}}}`)
	s.c.Create(e2e.SplitBody(2*time.Second, time.Hour)).Certified(e2e.DefaultTimeout) // the deal becomes VOID, because no party commits
	for _, query := range e2e.DashboardQueries(t) {
		e2e.Eventually(t, "data for "+query, e2e.DefaultTimeout, func() bool {
			return len(p.query(t, s.here(query))) > 0 || emptyWhenHealthy(query)
		})
	}
	for _, rule := range rules {
		for _, selector := range selectors(rule.Query) {
			here := strings.TrimSuffix(strings.Replace(selector, "{}", "{", 1), "}")
			here = strings.Replace(here+`,namespace="`+s.namespace+`"}`, "{,", "{", 1)
			if n := len(p.query(t, here)); (n > 0) == emptyWhenHealthy(selector) {
				t.Errorf("%s selects %s, which has %d series in a healthy deployment; want series, or none if it selects 5xx or an old schema", rule.Name, selector, n)
			}
		}
	}
	// With the chart's durations, 20 minutes are enough for every alert to fire, except FairpactReadOnly
	// and the error-budget alerts. In this test the durations are divided by `faster`.
	began := time.Now()
	e2e.Eventually(t, "every alert has had the time to fire", e2e.DefaultTimeout, func() bool { return time.Since(began) > 20*time.Minute/faster })
	stop()
	if fired := p.fired(t, s.namespace); len(fired) > 0 {
		t.Errorf("alerts fired without a fault: %v", fired)
	}
	if n := len(p.query(t, fmt.Sprintf(`up{namespace=%q} == 1`, s.namespace))); n != len(s.stack.Names()) {
		t.Errorf("%d targets are up, want %d", n, len(s.stack.Names()))
	}
}

func (s *site) here(query string) string {
	return strings.ReplaceAll(hastened(query), "$namespace", s.namespace)
}

// A healthy deployment has no series of failed calls, and none of an old schema.
func emptyWhenHealthy(query string) bool {
	return strings.Contains(query, `status=~"5.."`) || strings.Contains(query, `reason="schema"`)
}

var selector = regexp.MustCompile(`fairpact_[a-z_]+(\{[^}]*\})?`)

func selectors(query string) (all []string) {
	for _, found := range selector.FindAllString(query, -1) {
		if !strings.HasSuffix(found, "}") {
			found += "{}"
		}
		all = append(all, found)
	}
	return all
}
