package answer_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/problem"
)

// Each operation has its method and path (SPEC 4).
func TestRESTNamesMethodAndPath(t *testing.T) {
	want := map[problem.Op]string{
		problem.CreateKey: "POST /v1/keys", problem.ListAlgorithms: "GET /v1/algorithms", problem.CreateDeal: "POST /v1/deals",
		problem.ReadDeal: "GET /v1/deals/d_1", problem.ReadDeclaration: "GET /v1/deals/d_1/declaration",
		problem.Commit: "POST /v1/deals/d_1/commit", problem.Reveal: "POST /v1/deals/d_1/reveal", problem.Draw: "POST /v1/deals/d_1/entropy",
		problem.ReadCertificate: "GET /v1/deals/d_1/certificate", problem.Verify: "GET /v1/verify/{cert_id}", problem.IdempotencyKey: "Idempotency-Key",
	}
	for op, name := range problem.Ops {
		text := want[problem.Op(op)]
		if got := answer.REST(problem.Call{Op: problem.Op(op), DealID: "d_1"}); got == "" || got != text {
			t.Errorf("%s: %q, want %q", name, got, text)
		}
		if got := answer.REST(problem.Call{Op: problem.Op(op)}); got != strings.Replace(text, "d_1", "{id}", 1) {
			t.Errorf("%s of any deal: %s", name, got)
		}
	}
}

func TestErrorsAreWrittenInTheWordsOfREST(t *testing.T) {
	for _, row := range []struct {
		err     error
		status  int
		body    string
		headers string // Retry-After, WWW-Authenticate
	}{
		{problem.New(problem.AuthRequired, "get a key with %s", problem.Call{Op: problem.CreateKey}), 401, `{"error":"AUTH_REQUIRED: get a key with POST /v1/keys"}`, " Bearer"},
		{fmt.Errorf("outer: %w", problem.New(problem.CertNotReady, "<wait> & see").After(2)), 409, `{"error":"CERT_NOT_READY: <wait> & see"}`, "2 "},
		{fmt.Errorf("a secret"), 500, `{"error":"INTERNAL: the service failed; nothing was lost: send the same request again with the same Idempotency-Key"}`, " "},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Cache-Control", "public") // set by a handler that fails later
		answer.Error(w, row.err)
		h := w.Header()
		if w.Code != row.status || strings.TrimSpace(w.Body.String()) != row.body || h.Get("Retry-After")+" "+h.Get("WWW-Authenticate") != row.headers {
			t.Errorf("%d %s %v, want %+v", w.Code, w.Body, h, row)
		}
		if h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") != "application/json" {
			t.Errorf("%d: headers %v", w.Code, h)
		}
	}
}

func TestEncodeKeepsTextAsItIs(t *testing.T) {
	got, err := answer.Encode(map[string]string{"a": "<b> & \u00e9"})
	if err != nil || string(got) != "{\"a\":\"<b> & \u00e9\"}" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := answer.Encode(func() {}); err == nil {
		t.Error("a function is encoded")
	}
}

// Alerts need the series of a code before its first error.
func TestEveryCodeHasASeries(t *testing.T) {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, family := range families {
		if family.GetName() == "fairpact_errors_total" {
			series = len(family.GetMetric())
		}
	}
	if series != len(problem.Table) {
		t.Errorf("%d series for %d codes", series, len(problem.Table))
	}
}
