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

func TestSuccessIsNotStoredUnlessTheHandlerSaysSo(t *testing.T) {
	for set, want := range map[string]string{"": "no-store", "private, no-cache": "private, no-cache"} {
		w := httptest.NewRecorder()
		if set != "" {
			w.Header().Set("Cache-Control", set)
		}
		answer.JSON(w, 201, []byte(`{}`))
		if w.Code != 201 || w.Body.String() != `{}` || w.Header().Get("Cache-Control") != want {
			t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
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

func TestErrorsAreCountedByCode(t *testing.T) {
	before := counted(t)
	answer.Error(httptest.NewRecorder(), problem.New(problem.WrongAlgorithm, "x"))
	answer.Count(problem.New(problem.WrongAlgorithm, "x"))
	answer.Count(problem.New("UNKNOWN", "x"))
	after := counted(t)
	if n := after["WRONG_ALGORITHM"] - before["WRONG_ALGORITHM"]; n != 2 {
		t.Errorf("%v are counted, want 2", n)
	}
	if n := after["INTERNAL"] - before["INTERNAL"]; n != 1 {
		t.Errorf("an unknown code is counted %v times as INTERNAL, want once", n)
	}
	if len(after) != len(problem.Table) {
		t.Errorf("%d series for %d codes", len(after), len(problem.Table))
	}
}

func counted(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "fairpact_errors_total" {
			for _, m := range family.GetMetric() {
				counts[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return counts
}
