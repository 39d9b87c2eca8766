package translog

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
)

func send(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	request := of(http.NewRequestWithContext(t.Context(), method, url, nil)).ok(t)
	response, err := http.DefaultTransport.RoundTrip(request) // follows no redirect
	check(t, err)
	defer response.Body.Close()
	body := of(io.ReadAll(response.Body)).ok(t)
	return response, string(body)
}

func TestReadPort(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	waitForHead(t, l, 0)
	fill(t, l, 0, 2)
	fill(t, l, 2, 3)
	server := httptest.NewServer(l.ReadHandler())
	defer server.Close()
	head := func(size int64) TreeHead { return waitForHead(t, l, size) }
	leaves := leavesOf(0, 3)
	path := func(index, size uint64) []string {
		return toHex(of(reference(leaves).InclusionProof(index, size)).ok(t))
	}
	grown := of(reference(leaves).ConsistencyProof(2, 3)).ok(t)
	entry := hex.EncodeToString(leaves[1])

	for _, c := range []struct {
		url  string
		want any
	}{
		{"/v1/log/tree-head", head(3)},
		{"/v1/log/tree-head?tree_size=0", head(0)},
		{"/v1/log/proof?entry=" + entry, Inclusion{head(3), 1, entry, path(1, 3)}},
		{"/v1/log/consistency?first=2&second=3", Consistency{head(2), head(3), toHex(grown)}},
		{"/v1/log/consistency?first=0&second=2", Consistency{head(0), head(2), []string{}}},
	} {
		want := of(json.Marshal(c.want)).ok(t)
		response, body := send(t, "GET", server.URL+c.url)
		if response.StatusCode != 200 || strings.TrimSpace(body) != string(want) {
			t.Errorf("GET %s: %d %s\nwant %s", c.url, response.StatusCode, body, want)
		}
		if h := response.Header; h.Get("Content-Type") != "application/json" || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("GET %s: headers %v, want JSON, any origin and no-store", c.url, h)
		}
		same, empty := send(t, "HEAD", server.URL+c.url)
		if same.StatusCode != 200 || empty != "" || same.ContentLength != response.ContentLength {
			t.Errorf("HEAD %s: status %d, Content-Length %d, body %q; want 200, the length of GET and no body", c.url, same.StatusCode, same.ContentLength, empty)
		}
	}

	for _, c := range []struct {
		method, url string
		status      int
		code        string
	}{
		{"GET", "/", 404, "NOT_FOUND"},
		{"GET", "/v1/log/tree-head/", 404, "NOT_FOUND"},
		{"GET", "/v1//log/tree-head", 404, "NOT_FOUND"},
		{"GET", "/v1/log/../log/tree-head", 404, "NOT_FOUND"},
		{"GET", "/v1/append", 404, "NOT_FOUND"},
		{"OPTIONS", "/v1/nothing", 404, "NOT_FOUND"},
		{"POST", "/v1/log/tree-head", 405, "METHOD_NOT_ALLOWED"},
		{"DELETE", "/v1/log/proof", 405, "METHOD_NOT_ALLOWED"},
		{"GET", "/v1/log/proof?entry=" + strings.Repeat("A", 64), 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/proof?leaf_index=3", 404, "LEAF_NOT_FOUND"},
		{"GET", "/v1/log/proof?leaf_index=2&tree_size=2", 404, "LEAF_NOT_FOUND"},
		{"GET", "/v1/log/proof", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/proof?leaf_index=%zz", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/consistency?second=2", 400, "INVALID_REQUEST"},
		{"GET", "/checkpoint", 404, "CHECKPOINT_NOT_FOUND"}, // this log publishes no checkpoints
		{"GET", "/tile/0/000.p/1", 404, "CHECKPOINT_NOT_FOUND"},
		{"GET", "/v1/log/checkpoint", 404, "CHECKPOINT_NOT_FOUND"},
		{"GET", "/v1/log/policy", 404, "CHECKPOINT_NOT_FOUND"},
		{"GET", "/v1/log/tlog-proof?leaf_index=0", 404, "CHECKPOINT_NOT_FOUND"},
		{"GET", "/v1/log/tree-head?tree_size=-1", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/tree-head?tree_size=%2B3", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/tree-head?tree_size=03", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/tree-head?tree_size=-0", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/tree-head?tree_size=", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/tree-head?tree_size=9007199254740992", 400, "INVALID_REQUEST"},
	} {
		response, body := send(t, c.method, server.URL+c.url)
		if response.StatusCode != c.status || !strings.HasPrefix(body, `{"error":"`+c.code+": ") {
			t.Errorf("%s %s: status %d, body %s; want %d %s", c.method, c.url, response.StatusCode, body, c.status, c.code)
		}
		if response.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s %s: no CORS header, want any origin allowed", c.method, c.url)
		}
		if c.status == 405 && response.Header.Get("Allow") != "GET, HEAD, OPTIONS" {
			t.Errorf("%s %s: Allow is %q, want GET, HEAD, OPTIONS", c.method, c.url, response.Header.Get("Allow"))
		}
	}
	if response, body := send(t, "GET", server.URL+"/v1/log/status"); response.StatusCode != 200 || !strings.Contains(body, `"origin":null`) {
		t.Errorf("GET /v1/log/status: status %d, body %s; want 200 and a null origin", response.StatusCode, body)
	}
	if text, err := NewClient("", server.URL, "").TLogProof(t.Context(), [32]byte(leaves[0]), 0, false); err != nil || text != nil {
		t.Errorf("tlog-proof of a log without checkpoints: %q, %v; want none and no error", text, err)
	}
	response, body := send(t, "OPTIONS", server.URL+"/v1/log/proof")
	if response.StatusCode != 204 || body != "" || response.Header.Get("Allow") != "GET, HEAD, OPTIONS" || response.Header.Get("Access-Control-Allow-Methods") != "GET, HEAD, OPTIONS" {
		t.Errorf("OPTIONS: status %d, headers %v; want 204 and the allowed methods", response.StatusCode, response.Header)
	}

	asOwner(t, d, flip("leaves", "entry", "leaf_index = 1"))
	response, body = send(t, "GET", server.URL+"/v1/log/proof?leaf_index=1")
	if response.StatusCode != 503 || !strings.HasPrefix(body, `{"error":"LOG_INCONSISTENT: `) {
		t.Errorf("a tampered leaf: status %d, body %s; want 503 LOG_INCONSISTENT", response.StatusCode, body)
	}
	d.pool.Close()
	response, body = send(t, "GET", server.URL+"/v1/log/tree-head")
	if response.StatusCode != 503 || !strings.HasPrefix(body, `{"error":"UNAVAILABLE: `) || response.Header.Get("Retry-After") != "1" {
		t.Errorf("without a database: status %d, body %s; want 503 UNAVAILABLE with Retry-After", response.StatusCode, body)
	}
}

// Anyone may call the public port, so its callers must not decide which traces are sampled.
func TestOnlyThePrivatePortJoinsTraces(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider, propagator := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	defer func() { otel.SetTracerProvider(provider); otel.SetTextMapPropagator(propagator) }()
	telemetry.Trace()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)))
	otel.SetTextMapPropagator(propagation.TraceContext{})
	l := &Log{checks: checks{logger: quiet}}
	for name, port := range map[string]struct {
		http.Handler
		joins bool
	}{"read": {l.ReadHandler(), false}, "append": {l.AppendHandler(func() []string { return []string{secret} }), true}} {
		r := httptest.NewRequest(http.MethodGet, "/nowhere", nil)
		const from = "0af7651916cd43dd8448eb211c80319c"
		r.Header.Set("Traceparent", "00-"+from+"-b7ad6b7169203331-01")
		port.ServeHTTP(httptest.NewRecorder(), r)
		ended := spans.Ended()
		if len(ended) == 0 {
			t.Fatal("no span")
		}
		span := ended[len(ended)-1]
		if joined := span.SpanContext().TraceID().String() == from; joined != port.joins || len(span.Links()) == 1 == port.joins {
			t.Errorf("%s port: joined the caller's trace: %t, %d links; want joined: %t", name, joined, len(span.Links()), port.joins)
		}
	}
}
