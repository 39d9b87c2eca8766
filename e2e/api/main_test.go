// Package api tests the REST surface of a running deal-api.
package api

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

func TestMain(m *testing.M) {
	code := e2e.Main(m)
	if missing := unreached(); code == 0 && wholeSuite() && len(missing) > 0 {
		fmt.Fprintln(os.Stderr, "error codes that no test of this package has received:", missing)
		code = 1
	}
	os.Exit(code)
}

// elsewhere lists the codes that the tests of this package need not receive, because tests of other
// packages provoke them. e2e/trust tampers with the log and the deals. e2e/outage stops servers and
// makes a deployment read-only. e2e/abuse overloads deal-api.
var elsewhere = []problem.Code{problem.LogInconsistent, problem.LogUnavailable, problem.TagTaken, problem.Unavailable, problem.ReadOnly, problem.Overloaded}

func unreached() (missing []problem.Code) {
	for _, row := range problem.Table {
		if _, reached := e2e.Seen.Load(string(row.Code)); !reached && !slices.Contains(elsewhere, row.Code) {
			missing = append(missing, row.Code)
		}
	}
	return missing
}

func wholeSuite() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}

// newClient returns a client that follows no redirect. With the header Expect: 100-continue, the
// client sends the body only after the service asks for the body.
func newClient(t testing.TB) *e2e.Client {
	c := e2e.NewClient(t, e2e.BaseURL(t))
	c.Http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Http.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	return c
}

func split() e2e.Body   { return e2e.SplitBody(time.Hour, 2*time.Hour) }
func shapley() e2e.Body { return e2e.ShapleyBody(time.Hour, 2*time.Hour) }
func random(parties int, round int64) e2e.Body {
	return e2e.RandomBody(parties, round, time.Hour, 2*time.Hour)
}

// changed returns a copy of a creation body with some members changed. `members` alternates names and
// values. The value "-" removes the member.
func changed(b e2e.Body, members ...any) e2e.Body {
	b = maps.Clone(b)
	for i := 0; i+1 < len(members); i += 2 {
		if name := members[i].(string); members[i+1] == "-" {
			delete(b, name)
		} else {
			b[name] = members[i+1]
		}
	}
	return b
}

func computed(c *e2e.Client) (d *e2e.CreatedDeal, inputs []e2e.Sealed, certificate []byte) {
	x := e2e.Open(c, split(), 2, 2, e2e.AnnsValues, e2e.BobsValues)
	return x.Deal, x.Inputs, x.Deal.Certified(e2e.DefaultTimeout)
}

func sha(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func canonical(t testing.TB, text []byte) []byte {
	t.Helper()
	tree, err := canon.Parse(text)
	if err != nil {
		t.Fatalf("parse %s: %v", text, err)
	}
	return canon.Encode(tree)
}
