package api

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

func TestResponsesOutsideTheDocumentAreFound(t *testing.T) {
	c := newClient(t)
	body := func(old, text string) func(*e2e.Answer) {
		return func(a *e2e.Answer) { a.Body = bytes.Replace(a.Body, []byte(old), []byte(text), 1) }
	}
	for name, row := range map[string]struct {
		status int
		path   string
		change func(*e2e.Answer)
		ok     bool
	}{
		"as it is":            {401, "/v1/deals/x", func(*e2e.Answer) {}, true},
		"another status":      {200, "/v1/log/tree-head", func(a *e2e.Answer) { a.Status = 202 }, false},
		"an added member":     {200, "/v1/log/tree-head", body("{", `{"x":1,`), false},
		"a missing member":    {200, "/v1/log/tree-head", func(a *e2e.Answer) { a.Body = []byte("{}") }, false},
		"another call's code": {404, "/v1/verify/x", body("CERT_NOT_FOUND", "DEAL_NOT_FOUND"), false},
		"a missing header":    {401, "/v1/deals/x", func(a *e2e.Answer) { a.Header.Del("WWW-Authenticate") }, false},
	} {
		a := c.Want(row.status, "GET", row.path, "", nil)
		row.change(&a)
		r, err := http.NewRequest("GET", c.Base+row.path, nil)
		e2e.Must(t, err)
		if err := e2e.Published(t, c).Describes(r, a); (err == nil) != row.ok {
			t.Errorf("%s: the check returned %v, want no error: %v", name, err, row.ok)
		}
	}
}
