package web_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

func TestErrorsAreWrittenInTheWordsOfREST(t *testing.T) {
	for _, row := range []struct {
		err     error
		status  int
		body    string
		headers string
	}{
		{problem.New(problem.AuthRequired, "get a key with %s", problem.Call{Op: problem.CreateKey}), 401, `{"error":"AUTH_REQUIRED: get a key with POST /v1/keys"}`, " Bearer"},
		{fmt.Errorf("outer: %w", problem.New(problem.CertNotReady, "<wait> & see").WithRetryAfter(2)), 409, `{"error":"CERT_NOT_READY: <wait> & see"}`, "2 "},
		{fmt.Errorf("a secret"), 500, `{"error":"INTERNAL: the service failed; nothing was lost: send the same request again with the same Idempotency-Key"}`, " "},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Cache-Control", "public") // a handler set this header before it failed
		web.Error(w, row.err)
		h := w.Header()
		if w.Code != row.status || strings.TrimSpace(w.Body.String()) != row.body || h.Get("Retry-After")+" "+h.Get("WWW-Authenticate") != row.headers {
			t.Errorf("got %d %s with headers %v, want %d %s with %q", w.Code, w.Body, h, row.status, row.body, row.headers)
		}
		if h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") != "application/json" {
			t.Errorf("status %d has headers %v, want Cache-Control no-store and Content-Type application/json", w.Code, h)
		}
	}
}

func TestEncodeKeepsTextAsItIs(t *testing.T) {
	got, err := web.Encode(map[string]string{"a": "<b> & \u00e9"})
	if err != nil || string(got) != "{\"a\":\"<b> & \u00e9\"}" {
		t.Errorf("Encode: got %s (error %v), want < > & unescaped", got, err)
	}
	if _, err := web.Encode(func() {}); err == nil {
		t.Error("Encode of a function returns no error")
	}
}

// Without a series at 0, increase() in Prometheus misses the first error of a code.
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
		t.Errorf("fairpact_errors_total has %d series, want one for each of %d codes", series, len(problem.Table))
	}
}

// http.ServeMux alone would redirect some of these paths with an HTML body.
func TestPathsThatNoRouteServes(t *testing.T) {
	h := web.Router(map[string]web.Route{"/tile/{level}/{rest...}": {}}, "see /")
	for _, path := range []string{"/", "/tile/0", "/tile//0", "/tile", "/tile/entries%2f000"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 404 || strings.TrimSpace(w.Body.String()) != `{"error":"NOT_FOUND: no such path; see /"}` {
			t.Errorf("GET %s: %d %s, want the JSON 404", path, w.Code, w.Body)
		}
	}
}

// net/http keeps the trailer of a body with the request, and the names that the header announces for it.
func TestTrailersAreDropped(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	observed := web.Observed(logger, telemetry.NewRepeats(logger), true, func(w *web.Recorder, r *http.Request) {
		body, err := web.ReadAll(w, r, 100)
		web.JSON(w, http.StatusOK, fmt.Appendf(nil, "%s %v %v", body, err, r.Trailer))
	})
	var own *http.Request // net/http's
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own = r
		observed.ServeHTTP(w, r)
		if r.Trailer != nil {
			t.Errorf("the request has the trailer %v, want none", r.Trailer)
		}
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: aa, bb\r\nConnection: close\r\n\r\n2\r\n{}\r\n0\r\ncc:\r\ndd:\r\n\r\n")
	if said, err := io.ReadAll(conn); err != nil || !strings.Contains(string(said), "{} <nil> map[]") || own == nil {
		t.Errorf("the answer is %s, %v", said, err)
	}
}
