package api

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// The check of every call against the OpenAPI document, which the client makes, refuses
// requests and responses that the document does not allow.
func TestResponsesOutsideTheDocumentAreFound(t *testing.T) {
	c := newClient(t)
	s := e2e.Published(t, c)
	good := c.Want(200, "GET", "/v1/status", "", nil)
	head := c.Want(200, "GET", "/v1/log/tree-head", "", nil)
	refusal := c.Want(401, "GET", "/v1/deals/x", "", nil)
	with := func(a e2e.Answer, change func(*e2e.Answer)) e2e.Answer {
		a.Header = a.Header.Clone()
		change(&a)
		return a
	}
	for name, row := range map[string]struct {
		method, path, body string
		a                  e2e.Answer
		ok                 bool
	}{
		"as it is":             {"GET", "/v1/status", "", good, true},
		"another status":       {"GET", "/v1/status", "", with(good, func(a *e2e.Answer) { a.Status = 202 }), false},
		"another media type":   {"GET", "/v1/status", "", with(good, func(a *e2e.Answer) { a.Header.Set("Content-Type", "text/html") }), false},
		"another body":         {"GET", "/v1/status", "", head, false},
		"an added member":      {"GET", "/v1/log/tree-head", "", with(head, func(a *e2e.Answer) { a.Body = []byte(strings.Replace(string(a.Body), "{", `{"x":1,`, 1)) }), false},
		"a refusal":            {"GET", "/v1/deals/x", "", refusal, true},
		"without its header":   {"GET", "/v1/deals/x", "", with(refusal, func(a *e2e.Answer) { a.Header.Del("WWW-Authenticate") }), false},
		"a code of no such op": {"GET", "/v1/deals/x", "", with(refusal, func(a *e2e.Answer) { a.Body = []byte(`{"error":"ALREADY_REVEALED: x"}`) }), false},
		"a code of no table":   {"GET", "/v1/deals/x", "", with(refusal, func(a *e2e.Answer) { a.Body = []byte(`{"error":"NO_SUCH: x"}`) }), false},
		"no error":             {"GET", "/v1/deals/x", "", with(refusal, func(a *e2e.Answer) { a.Body = []byte(`{"error":"no code"}`) }), false},
		"an unknown path":      {"GET", "/v1/x", "", good, false},
		"an unknown method":    {"PUT", "/v1/status", "", good, false},
		"a bad request taken":  {"POST", "/v1/keys", "[]", with(good, func(a *e2e.Answer) { a.Status, a.Body = 201, []byte(`{"api_key":"fp_x"}`) }), false},
		"a good request taken": {"POST", "/v1/keys", "{}", with(good, func(a *e2e.Answer) { a.Status, a.Body = 201, []byte(`{"api_key":"fp_x"}`) }), true},
		"without a credential": {"POST", "/v1/deals/x/cancel", "", with(good, func(a *e2e.Answer) { a.Body = []byte(`{"deal_id":"x","state":"CANCELLED"}`) }), false},
	} {
		r, err := http.NewRequest(row.method, c.Base+row.path, io.NopCloser(strings.NewReader(row.body)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Describes(r, row.a); (err == nil) != row.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
