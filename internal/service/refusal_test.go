package service_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/service"
)

// What net/http refuses before a handler sees it is answered like any other
// error, on every port.
func TestRequestsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	health := service.NewHealth(func(context.Context) error { return nil })
	logger, addresses := listening(t, 2)
	ended := make(chan error, 1)
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	go func() {
		ended <- health.Serve(ctx, logger,
			service.Port{Name: "admin", Address: "127.0.0.1:0", Server: health.AdminServer()},
			service.Port{Name: "public", Address: "127.0.0.1:0", Server: &http.Server{Handler: echo, MaxHeaderBytes: 4096}})
	}()
	at := addresses()
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
				answered, body := send(t, strings.TrimPrefix(at[port], "http://"), row.request)
				if want := regexp.MustCompile(`^\{"error":"` + row.error + `.*"\}\n$`); answered.StatusCode != row.status || !want.MatchString(body) {
					t.Errorf("%d %q, want %d %s", answered.StatusCode, body, row.status, want)
				}
				if h := answered.Header; h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" || !answered.Close {
					t.Errorf("headers %v", h)
				}
			})
		}
	}
	// What a handler writes stays as it is, even where it looks like such a refusal.
	text := strings.Repeat("HTTP/1.1 417 Expectation Failed ", 4096)
	answered, body := send(t, strings.TrimPrefix(at["public"], "http://"),
		fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
	if answered.StatusCode != 200 || body != text {
		t.Errorf("%d with %d bytes, want the %d that were sent", answered.StatusCode, len(body), len(text))
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// send writes a request as it is and reads the answer and its body.
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
