package service_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/platform/service"
)

// While the database does not answer, readiness stays as it is.
func TestReadinessWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	gone, secret := fmt.Errorf("%w: refused", database.ErrNoAnswer), errors.New("another server secret")
	var found atomic.Pointer[error]
	found.Store(&gone)
	s := start(t, &service.Health{Ready: func(context.Context) error { return *found.Load() }}, nil, nil)
	for i, step := range []struct {
		found  error
		status int
		says   string
	}{
		{gone, 503, "does not answer"}, // no check has passed yet
		{nil, 200, "ok"},
		{gone, 200, "does not answer"},
		{secret, 503, "another server secret"},
		{gone, 503, "does not answer"},
		{nil, 200, "ok"},
	} {
		found.Store(&step.found)
		if status, body, _ := s.get("admin", "/readyz"); status != step.status || !strings.Contains(body, step.says) {
			t.Errorf("step %d: /readyz is %d %q, want %d with %q", i, status, body, step.status, step.says)
		}
	}
}

// net/http refuses some requests before a handler sees them. These requests get the usual
// error body, on the admin port too. e2e/api tests more such requests.
func TestRequestsThatCannotBeParsed(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	s := start(t, &service.Health{Ready: ready}, nil, map[string]http.Handler{"public": echo})
	for request, says := range map[string]string{ // the fourth text and the last two are those of net/http
		"GET /v1/deals/%zz HTTP/1.1\r\nHost: x\r\n\r\n": `percent`,
		"GET / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n": `a header cannot be read`,
		"GET / HTTP/3.0\r\nHost: x\r\n\r\n":             `unsupported protocol version`,
		"GET / HTTP/1.1\r\n\r\n":                        `"INVALID_REQUEST: missing required Host header; send`,
		"GET / HTTP/1.1\r\nHost: a b\r\n\r\n":           `"INVALID_REQUEST: malformed Host header; send`,
	} {
		answered, body := send(t, strings.TrimPrefix(s.at["admin"], "http://"), request)
		if answered.StatusCode != 400 || !strings.HasPrefix(body, `{"error":"INVALID_REQUEST: `) || !strings.Contains(body, says) ||
			answered.Header.Get("Cache-Control") != "no-store" || !answered.Close {
			t.Errorf("%q: got %d %q with headers %v, want 400 INVALID_REQUEST with %q", request, answered.StatusCode, body, answered.Header, says)
		}
	}
	// The server never changes a handler's answer, even if the answer looks like a refusal
	// by net/http.
	text := strings.Repeat("HTTP/1.1 417 Expectation Failed ", 4096)
	answered, body := send(t, strings.TrimPrefix(s.at["public"], "http://"),
		fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
	if answered.StatusCode != 200 || body != text {
		t.Errorf("got status %d with %d bytes, want 200 with the %d bytes that the handler sent", answered.StatusCode, len(body), len(text))
	}
	s.stop()
	s.ends()
}

func send(t *testing.T, address, request string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, request) }() // the server may answer before it has read the whole request
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
