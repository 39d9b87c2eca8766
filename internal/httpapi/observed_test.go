package httpapi

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/caller"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/telemetry"
)

// observe runs one call through the log and gives its answer and its log lines.
func observe(t *testing.T, r *http.Request, pattern string, handler http.HandlerFunc) (*httptest.ResponseRecorder, []map[string]any) {
	t.Helper()
	var text bytes.Buffer
	jsonLines := slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})
	a := &API{Config: Config{Logger: slog.New(telemetry.LogHandler(jsonLines)), Callers: &caller.Policy{}}, limits: limits.New()}
	a.failures = telemetry.NewRepeats(a.Logger)
	mux := http.NewServeMux()
	mux.HandleFunc(pattern, handler)
	w := httptest.NewRecorder()
	a.observed(mux).ServeHTTP(w, r)
	var lines []map[string]any
	for _, line := range strings.Split(strings.TrimSpace(text.String()), "\n") {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, fields)
	}
	for _, planted := range []string{"planted", "PLANTED"} {
		if strings.Contains(text.String(), planted) {
			t.Errorf("the log shows what the caller sent: %s", text.String())
		}
	}
	return w, lines
}

// A call is logged by its route: no header, query, body, made-up method or path
// of the caller's finds its way into a log line.
func TestLogLinesHoldNothingOfTheCaller(t *testing.T) {
	for _, id := range []string{"planted", "d_planted", strings.Repeat("planted", 200), "fp_planted-instead-of-a-deal"} {
		r := httptest.NewRequest("GET", "/v1/deals/"+id+"?token=planted", strings.NewReader(`{"input":"planted"}`))
		r.Method = "PLANTED-" + strings.Repeat("X", 100)
		r.Header.Set("Authorization", "Bearer it_planted")
		r.Header.Set("Idempotency-Key", "planted")
		r.Header.Set("User-Agent", "planted")
		r.Header.Set("X-Request-Id", "it_planted")
		w, lines := observe(t, r, "/v1/deals/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
		if len(lines) != 2 || lines[0]["route"] != "/v1/deals/{id}" || lines[0]["status"] != 503. || lines[0]["level"] != "DEBUG" || lines[1]["level"] != "WARN" || lines[1]["route"] != "/v1/deals/{id}" {
			t.Errorf("logged %v", lines)
		}
		if lines[0]["request_id"] != w.Header().Get("X-Request-Id") || len(w.Header().Get("X-Request-Id")) != 16 {
			t.Errorf("request id %v, answered %q", lines[0]["request_id"], w.Header().Get("X-Request-Id"))
		}
	}
	const id = "d_0123456789abcdefABCDEF"
	r := httptest.NewRequest("GET", "/v1/deals/"+id, nil)
	r.Header.Set("X-Request-Id", "3f2b9c1e-7a10-4d55-9b1e-0c5a8f6d2e41")
	w, lines := observe(t, r, "/v1/deals/{id}", func(w http.ResponseWriter, r *http.Request) {
		telemetry.NoteDeal(r.Context(), id)
		_, _ = w.Write([]byte("{}"))
	})
	if lines[0]["deal_id"] != id || lines[0]["status"] != 200. || lines[0]["level"] != "DEBUG" {
		t.Errorf("logged %v", lines)
	}
	if sent := r.Header.Get("X-Request-Id"); lines[0]["request_id"] != sent || w.Header().Get("X-Request-Id") != sent {
		t.Errorf("request id %v, answered %q, sent %q", lines[0]["request_id"], w.Header().Get("X-Request-Id"), sent)
	}
}

// A panic is a 500 with the error body, unless the answer has begun.
func TestPanics(t *testing.T) {
	w, lines := observe(t, httptest.NewRequest("GET", "/x", nil), "/x", func(http.ResponseWriter, *http.Request) { panic("a fault") })
	if w.Code != 500 || !strings.HasPrefix(w.Body.String(), `{"error":"INTERNAL: `) || strings.Contains(w.Body.String(), "a fault") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if len(lines) != 3 || lines[0]["level"] != "ERROR" || lines[1]["status"] != 500. {
		t.Errorf("logged %v", lines)
	}
	w, _ = observe(t, httptest.NewRequest("GET", "/x", nil), "/x", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		panic("a fault")
	})
	if w.Body.String() != "half" {
		t.Errorf("an answer that had begun goes on with %q", w.Body)
	}
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("an abort is not passed on")
		}
	}()
	observe(t, httptest.NewRequest("GET", "/x", nil), "/x", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
}
