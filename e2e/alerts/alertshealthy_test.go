//go:build alerts

package alerts

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// emptyWhenWell are the parts of queries that nothing answers in a deployment in
// which nothing fails: a series of 5xx begins with the first.
var emptyWhenWell = []string{`status=~"5.."`}

// A deployment that is well, under a light load, has no alert, and a series for
// everything that an alert or the dashboard asks for.
func healthy(t *testing.T, p *prometheus, rules []alertRule) {
	s := siteOf(t, p, fault{alert: "none", what: "all is well", env: []string{guardBeside}, witnesses: 2})
	stop := s.load(2)
	d, inTime := s.c.Nonces(s.stack.Chain(), e2e.After(time.Hour), e2e.After(2*time.Hour))
	if !inTime {
		t.Fatal("an hour was not enough to play a deal of two")
	}
	s.c.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
	s.c.Want(200, "POST", "/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_algorithms","arguments":{}}}`)
	s.c.Create(e2e.SplitBody(2*time.Second, time.Hour)).Certified(e2e.Patience) // VOID, by the worker
	for _, query := range e2e.DashboardQueries(t) {
		e2e.Eventually(t, "data for "+query, e2e.Patience, func() bool {
			return len(p.query(t, s.here(query))) > 0 || whenWell(query)
		})
	}
	for _, rule := range rules {
		for _, selector := range selectors(rule.Query) {
			here := strings.TrimSuffix(strings.Replace(selector, "{}", "{", 1), "}")
			here = strings.Replace(here+`,namespace="`+s.namespace+`"}`, "{,", "{", 1)
			if n := len(p.query(t, here)); (n > 0) == whenWell(selector) {
				t.Errorf("%s asks for %s, which has %d series where all is well", rule.Name, selector, n)
			}
		}
	}
	// As long as the longest window but those of the error budget, and a `for`.
	began := time.Now()
	e2e.Eventually(t, "time to have fired", e2e.Patience, func() bool { return time.Since(began) > 20*time.Minute/faster })
	stop()
	if fired := p.fired(t, s.namespace); len(fired) > 0 {
		t.Errorf("all is well, and these fire: %v", fired)
	}
	if n := len(p.query(t, fmt.Sprintf(`up{namespace=%q} == 1`, s.namespace))); n != len(s.stack.Names()) {
		t.Errorf("%d targets are up, want %d", n, len(s.stack.Names()))
	}
}

// here is a dashboard's query for this stack.
func (s *site) here(query string) string {
	return strings.ReplaceAll(hastened(query), "$namespace", s.namespace)
}

func whenWell(query string) bool {
	for _, part := range emptyWhenWell {
		if strings.Contains(query, part) {
			return true
		}
	}
	return false
}

// selector is a metric of ours with or without its labels.
var selector = regexp.MustCompile(`fairpact_[a-z_]+(\{[^}]*\})?`)

// selectors are the series that a query asks for, each with its braces.
func selectors(query string) (all []string) {
	for _, found := range selector.FindAllString(query, -1) {
		if !strings.HasSuffix(found, "}") {
			found += "{}"
		}
		all = append(all, found)
	}
	return all
}
