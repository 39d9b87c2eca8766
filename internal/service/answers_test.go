package service_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairpact/fairpact/internal/database"
	"github.com/fairpact/fairpact/internal/service"
)

// Losing the database does not change readiness; an answer of the database does.
func TestReadinessWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	gone, secret := fmt.Errorf("%w: refused", database.ErrNoAnswer), errors.New("another server secret")
	var found atomic.Pointer[error]
	h := service.NewHealth(func(context.Context) error { return *found.Load() }).Handler()
	for i, step := range []struct {
		found  error
		status int
		says   string
	}{
		{gone, 503, "does not answer"}, // at the start
		{nil, 200, "ok"},
		{gone, 200, "does not answer"},
		{secret, 503, "another server secret"},
		{gone, 503, "does not answer"},
		{nil, 200, "ok"},
	} {
		found.Store(&step.found)
		answered := httptest.NewRecorder()
		h.ServeHTTP(answered, httptest.NewRequest("GET", "/readyz", nil))
		if answered.Code != step.status || !strings.Contains(answered.Body.String(), step.says) {
			t.Errorf("step %d: %d %q, want %d with %q", i, answered.Code, answered.Body, step.status, step.says)
		}
	}
}

// Requests that net/http refuses before a handler sees them get the usual error body, on
// every port.
func TestRequestsThatCannotBeParsed(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	s := start(t, service.NewHealth(ready), nil, map[string]http.Handler{"public": echo})
	for what, row := range map[string]struct {
		request string
		status  int
		error   string
	}{
		"a broken escape":         {"GET /v1/deals/%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, `INVALID_REQUEST: .*percent`},
		"no host":                 {"GET / HTTP/1.1\r\n\r\n", 400, `INVALID_REQUEST: .*missing required Host header`},
		"two hosts":               {"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, `INVALID_REQUEST: .*Host`},
		"no method":               {"(GET) / HTTP/1.1\r\nHost: x\r\n\r\n", 400, `INVALID_REQUEST: `},
		"no header line":          {"GET / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", 400, `INVALID_REQUEST: `},
		"a bad length":            {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, `INVALID_REQUEST: `},
		"another version":         {"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 400, `INVALID_REQUEST: .*unsupported protocol version`},
		"another transfer coding": {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 400, `INVALID_REQUEST: .*Content-Length`},
		"another expectation":     {"POST / HTTP/1.1\r\nHost: x\r\nExpect: more\r\nContent-Length: 1\r\n\r\nx", 400, `INVALID_REQUEST: .*Expect`},
		"headers too large":       {"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n", 431, `HEADERS_TOO_LARGE: `},
	} {
		for _, port := range []string{"public", "admin"} {
			t.Run(what+" on the "+port+" port", func(t *testing.T) {
				answered, body := send(t, strings.TrimPrefix(s.at[port], "http://"), row.request)
				if want := regexp.MustCompile(`^\{"error":"` + row.error + `.*"\}\n$`); answered.StatusCode != row.status || !want.MatchString(body) {
					t.Errorf("%d %q, want %d %s", answered.StatusCode, body, row.status, want)
				}
				if h := answered.Header; h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" || !answered.Close {
					t.Errorf("headers %v", h)
				}
			})
		}
	}
	// A handler's answer is never changed, even if it looks like such a refusal.
	text := strings.Repeat("HTTP/1.1 417 Expectation Failed ", 4096)
	answered, body := send(t, strings.TrimPrefix(s.at["public"], "http://"),
		fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
	if answered.StatusCode != 200 || body != text {
		t.Errorf("%d with %d bytes, want the %d that were sent", answered.StatusCode, len(body), len(text))
	}
	s.stop()
	s.ends()
}

// send writes raw bytes to a new connection and reads the answer.
func send(t *testing.T, address, request string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, request) }() // the server may answer before it has read all
	answered, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answered.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered, string(body)
}
