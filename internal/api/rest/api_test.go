package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/platform/caller"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/platform/web"
)

func observed(w io.Writer) *API {
	logger := slog.New(telemetry.LogHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})))
	return &API{Config: Config{Logger: logger, Services: ops.Services{Callers: &caller.Policy{}, Escrow: escrow.New(nil, nil, nil, nil, nil, nil, escrow.Options{}, logger)}}, failures: telemetry.NewRepeats(logger)}
}

func observe(t *testing.T, r *http.Request, pattern string, handler http.HandlerFunc) (*httptest.ResponseRecorder, []map[string]any) {
	t.Helper()
	var text bytes.Buffer
	mux := http.NewServeMux()
	mux.HandleFunc(pattern, handler)
	w := httptest.NewRecorder()
	observed(&text).observed(mux).ServeHTTP(w, r)
	if strings.Contains(strings.ToLower(text.String()), "planted") {
		t.Errorf("the log shows what the caller sent: %s", text.String())
	}
	var lines []map[string]any
	for line := range strings.Lines(text.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("log line %q is not JSON: %v", line, err)
		}
		lines = append(lines, fields)
	}
	return w, lines
}

// The deadline of a call leaves time for a slow body and comes before the server cuts the
// connection.
func TestCallsAreBounded(t *testing.T) {
	begin := time.Now()
	observe(t, httptest.NewRequest("GET", "/v1/status", nil), "/v1/status", func(_ http.ResponseWriter, r *http.Request) {
		ends, bounded := r.Context().Deadline()
		if !bounded || ends.Before(begin.Add(timelimits.Body)) || ends.After(time.Now().Add(timelimits.Write)) {
			t.Errorf("the call began at %s and its deadline is %s (set: %t), want one %s to %s later", begin, ends, bounded, timelimits.Body, timelimits.Write)
		}
	})
}

// A log line names the route. It shows no query, body, credential or overlong method. Of
// the headers it shows only a valid X-Request-Id, and of the path only a well-formed deal id.
func TestLogLinesShowNothingThatTheCallerSent(t *testing.T) {
	for _, id := range []string{"planted", "d_planted", strings.Repeat("planted", 200), "fp_planted-instead-of-a-deal"} {
		r := httptest.NewRequest("GET", "/v1/deals/"+id+"?token=planted", strings.NewReader(`{"input":"planted"}`))
		r.Method = "PLANTED-" + strings.Repeat("X", 100)
		r.Header.Set("Authorization", "Bearer it_planted")
		r.Header.Set("Idempotency-Key", "planted")
		r.Header.Set("User-Agent", "planted")
		r.Header.Set("X-Request-Id", "it_planted")
		w, lines := observe(t, r, "/v1/deals/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
		if len(lines) != 2 || lines[0]["route"] != "/v1/deals/{id}" || lines[0]["status"] != 503. || lines[0]["level"] != "DEBUG" || lines[1]["level"] != "WARN" || lines[1]["route"] != "/v1/deals/{id}" {
			t.Errorf("a call of /v1/deals/%s logs %v, want a DEBUG and a WARN line with the route /v1/deals/{id}", id, lines)
		}
		if lines[0]["request_id"] != w.Header().Get("X-Request-Id") || len(w.Header().Get("X-Request-Id")) != 16 {
			t.Errorf("the log has request_id %v and the answer %q, want the same new id of 16 characters", lines[0]["request_id"], w.Header().Get("X-Request-Id"))
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
		t.Errorf("a call of deal %s logs %v, want a DEBUG line with its deal_id and status 200", id, lines)
	}
	if sent := r.Header.Get("X-Request-Id"); lines[0]["request_id"] != sent || w.Header().Get("X-Request-Id") != sent {
		t.Errorf("the log has request_id %v and the answer %q, want %q as sent", lines[0]["request_id"], w.Header().Get("X-Request-Id"), sent)
	}
}

func TestAPanicIsAnsweredUnlessTheAnswerHasBegun(t *testing.T) {
	w, lines := observe(t, httptest.NewRequest("GET", "/x", nil), "/x", func(http.ResponseWriter, *http.Request) { panic("a fault") })
	if w.Code != 500 || !strings.HasPrefix(w.Body.String(), `{"error":"INTERNAL: `) || strings.Contains(w.Body.String(), "a fault") {
		t.Errorf("a panic is answered %d %s, want 500 INTERNAL without the panic's text", w.Code, w.Body)
	}
	if len(lines) != 3 || lines[0]["level"] != "ERROR" || lines[1]["status"] != 500. {
		t.Errorf("a panic logs %v, want 3 lines: an ERROR first, then the request with status 500", lines)
	}
	w, _ = observe(t, httptest.NewRequest("GET", "/x", nil), "/x", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		panic("a fault")
	})
	if w.Body.String() != "half" {
		t.Errorf("after a panic the begun answer is %q, want \"half\"", w.Body)
	}
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("http.ErrAbortHandler is not passed on to net/http")
		}
	}()
	observe(t, httptest.NewRequest("GET", "/x", nil), "/x", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
}

// However many reads are forwarded at once, they reuse mostToLog connections.
func TestLogProxyKeepsItsConnections(t *testing.T) {
	var dials atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dials.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	proxy, err := observed(io.Discard).logProxy(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 * mostToLog {
		all.Go(func() {
			for range 20 {
				w := httptest.NewRecorder()
				if proxy(w, httptest.NewRequest("GET", "/v1/log/tree-head", nil)); w.Code != 200 {
					t.Errorf("a forwarded read: %d", w.Code)
				}
			}
		})
	}
	all.Wait()
	if n := dials.Load(); n > 2*mostToLog { // net/http may replace a connection
		t.Errorf("%d calls made %d connections, want at most %d", 4*mostToLog*20, n, 2*mostToLog)
	}
}

// blocked is the ResponseWriter of a client that takes nothing.
type blocked struct {
	*httptest.ResponseRecorder
	began func()
	until <-chan struct{}
}

func (b *blocked) Write([]byte) (int, error) {
	b.began()
	<-b.until
	return 0, io.ErrClosedPipe
}

// A client that takes nothing of a tile keeps no connection to log-server.
func TestLogProxyFreesItsConnections(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 8<<10)) }))
	defer server.Close()
	proxy, err := observed(io.Discard).logProxy(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	const clients = mostToLog + 1
	began, end := make(chan struct{}, clients), make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	defer close(end)
	for range clients {
		all.Go(func() {
			defer func() { _ = recover() }() // ReverseProxy panics with http.ErrAbortHandler, as net/http wants
			proxy(&blocked{httptest.NewRecorder(), sync.OnceFunc(func() { began <- struct{}{} }), end}, httptest.NewRequest("GET", "/tile/0/000", nil))
		})
	}
	for n := range clients {
		select {
		case <-began:
		case <-time.After(30 * time.Second):
			t.Fatalf("%d of %d answers began while no client takes its own", n, clients)
		}
	}
}

// log-server gets the query unchanged, and no header that identifies the caller.
func TestLogProxyPassesNoCredential(t *testing.T) {
	var asked *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Clone(r.Context())
		if body, err := io.ReadAll(r.Body); len(body) > 0 || err != nil {
			t.Errorf("log-server got the body %q, %v, want none: the proxy could read it after the call ended", body, err)
		}
		if r.URL.Path == "/tile/0/000" {
			_, _ = w.Write(make([]byte, maxFromLog+1))
			return
		}
		http.Error(w, "the log's own words", http.StatusNotFound)
	}))
	var logs bytes.Buffer
	proxy, err := observed(&logs).logProxy(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/v1/log/proof?leaf_index=1&entry=%zz&x;y", strings.NewReader("a body"))
		for _, name := range []string{"Authorization", "Idempotency-Key", "Cookie", "X-Forwarded-For"} {
			r.Header.Set(name, "secret")
		}
		w := httptest.NewRecorder()
		proxy(w, r)
		return w
	}
	if w := ask(); w.Code != 404 || w.Body.String() != "the log's own words\n" {
		t.Errorf("log-server's 404 is answered %d %q, want it unchanged", w.Code, w.Body)
	}
	if asked.URL.Path != "/v1/log/proof" || asked.URL.RawQuery != "leaf_index=1&entry=%zz&x;y" || strings.Contains(fmt.Sprint(asked.Header), "secret") {
		t.Errorf("log-server got %s with headers %v, want the caller's path and query, and no secret", asked.URL, asked.Header)
	}
	whole := httptest.NewRecorder()
	quiet, err := observed(io.Discard).logProxy(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if quiet(whole, httptest.NewRequest("GET", "/tile/0/000", nil)); whole.Code != 503 {
		t.Errorf("an answer that is too large is answered %d, want 503 and no part of it", whole.Code)
	}
	server.Close()
	if w := ask(); w.Code != 503 || !strings.HasPrefix(w.Body.String(), `{"error":"LOG_UNAVAILABLE: `) || w.Header().Get("Retry-After") == "" {
		t.Errorf("with log-server down: %d %s, want 503 LOG_UNAVAILABLE with Retry-After", w.Code, w.Body)
	}
	if !strings.Contains(logs.String(), "connection refused") {
		t.Errorf("with log-server down the log is %s, want the cause", &logs)
	}
}

func TestPublicKeysArePublishedUnchanged(t *testing.T) {
	const publishedKeys = `{"keys":[{"pubkey":"es256:02","state":"current"}]}`
	api, err := New(Config{KeySet: func() []byte { return []byte(publishedKeys) }, LogReadURL: "http://127.0.0.1:1", Services: ops.Services{Callers: &caller.Policy{}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/v1/pubkeys", nil)
	r.Header.Set("Authorization", "Bearer fp_unknown")
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	if h := w.Header(); w.Code != 200 || w.Body.String() != publishedKeys || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Cache-Control") != web.CachePublic || h.Get("ETag") == "" {
		t.Errorf("GET /v1/pubkeys: %d with %v and %s, want 200, CORS, ETag and %s", w.Code, h, w.Body, publishedKeys)
	}
}
