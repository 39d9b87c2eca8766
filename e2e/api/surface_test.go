package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// surfaceClient is a client of the shared stack that follows no redirect and
// lets the service answer before it sends a body that was announced.
func surfaceClient(t testing.TB) *e2e.Client {
	c := e2e.NewClient(t, e2e.BaseURL(t))
	c.Http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Http.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	return c
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"}

// Each path has its methods and answers 405 to the others, with or without a
// credential.
func TestMethodsOfEachPath(t *testing.T) {
	c := surfaceClient(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	for path, allow := range map[string]string{
		"/v1/status":             "GET, HEAD, OPTIONS",
		"/v1/algorithms":         "GET, HEAD, OPTIONS",
		"/openapi.json":          "GET, HEAD, OPTIONS",
		"/v1/verify/nothing":     "GET, HEAD, OPTIONS",
		"/v1/log/tree-head":      "GET, HEAD, OPTIONS",
		"/v1/log/proof":          "GET, HEAD, OPTIONS",
		"/v1/log/consistency":    "GET, HEAD, OPTIONS",
		"/v1/log/checkpoint":     "GET, HEAD, OPTIONS",
		"/v1/log/status":         "GET, HEAD, OPTIONS",
		"/v1/log/policy":         "GET, HEAD, OPTIONS",
		"/checkpoint":            "GET, HEAD, OPTIONS",
		"/tile/0/000.p/1":        "GET, HEAD, OPTIONS",
		d.Path(""):               "GET, HEAD, OPTIONS",
		d.Path("/certificate"):   "GET, HEAD, OPTIONS",
		d.Path("/inputs"):        "GET, HEAD, OPTIONS",
		"/v1/keys":               "OPTIONS, POST",
		"/v1/deals":              "OPTIONS, POST",
		d.Path("/commit"):        "OPTIONS, POST",
		d.Path("/reveal"):        "OPTIONS, POST",
		d.Path("/entropy"):       "OPTIONS, POST",
		d.Path("/cancel"):        "OPTIONS, POST",
		"/v1/deals/none/commit":  "OPTIONS, POST",
		"/v1/deals/none/inputs":  "GET, HEAD, OPTIONS",
		"/v1/deals/none":         "GET, HEAD, OPTIONS",
		"/v1/deals/none/entropy": "OPTIONS, POST",
	} {
		for _, method := range methods {
			switch a := c.Do(method, path, "", nil); {
			case method == "OPTIONS":
				if a.Status != 204 || a.Header.Get("Allow") != allow {
					t.Errorf("OPTIONS %s: %d, Allow %q, want 204, %q", path, a.Status, a.Header.Get("Allow"), allow)
				}
			case strings.Contains(allow, method):
				if a.Status == 405 || a.Header.Get("Allow") != "" {
					t.Errorf("%s %s: %d", method, path, a.Status)
				}
			case a.Status != 405 || a.Header.Get("Allow") != allow:
				t.Errorf("%s %s: %d, Allow %q, want 405, %q", method, path, a.Status, a.Header.Get("Allow"), allow)
			}
		}
	}
}

// No such path is 404 with an error body, whoever asks and however; nothing
// redirects.
func TestPathsThatDoNotExist(t *testing.T) {
	c := surfaceClient(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	for _, path := range []string{
		"/v1", "/v1/", "/v1/nothing", "/v2/status", "/v1/status/", "/v1//status", "//v1/status", "/v1/./status", "/v1/x/../status", "/V1/STATUS",
		"/v1/status/more", "/v1/keys/", "/v1/deals/", "/v1/deals//commit", "/v1/verify/", "/v1/verify/a/b", "/v1/log", "/v1/log/", "/v1/log/nothing",
		"/v1/log/tree-head/", d.Path("/"), d.Path("/nothing"), d.Path("/commit/"), d.Path("/commit/more"), d.Path("/../../status"), "/openapi.json/", "/openapi",
		"/v1/deals/%2e%2e", "/v1/deals/%2e%2e/commit",
	} {
		for _, method := range methods {
			for _, token := range []string{"", d.Key, d.Tokens[0]} {
				a := c.Do(method, path, token, nil)
				if a.Status != 404 || method != "HEAD" && strings.HasPrefix(path, "/v1") && a.Code() != "NOT_FOUND" {
					t.Errorf("%s %s: %d %.200s", method, path, a.Status, a.Body)
				}
				if to := a.Header.Get("Location"); to != "" {
					t.Errorf("%s %s redirects to %s", method, path, to)
				}
			}
		}
	}
}

// HEAD is GET without its body.
func TestHead(t *testing.T) {
	c := surfaceClient(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	for _, call := range []struct{ path, token string }{
		{"/v1/status", ""}, {"/v1/algorithms", ""}, {"/openapi.json", ""}, {"/v1/log/tree-head", ""}, {"/v1/log/proof", ""}, {"/v1/log/consistency?first=0", ""}, {"/v1/log/status", ""}, {"/v1/log/policy", ""},
		{"/v1/verify/nothing", ""}, {d.Path(""), d.Key}, {d.Path(""), d.Tokens[1]}, {d.Path(""), ""}, {d.Path(""), "it_unknown"}, {d.Path("/certificate"), d.Tokens[0]},
		{d.Path("/certificate"), d.Key}, {d.Path("/inputs"), d.Tokens[0]}, {"/v1/deals/none", d.Key},
	} {
		get, head := c.Do("GET", call.path, call.token, nil), c.Do("HEAD", call.path, call.token, nil)
		if head.Status != get.Status || len(head.Body) != 0 || head.Header.Get("Content-Type") != "application/json" {
			t.Errorf("HEAD %s: %d with %d bytes of %s; GET: %d", call.path, head.Status, len(head.Body), head.Header.Get("Content-Type"), get.Status)
		}
		if get.Header.Get("WWW-Authenticate") != head.Header.Get("WWW-Authenticate") {
			t.Errorf("HEAD %s: WWW-Authenticate %q", call.path, head.Header.Get("WWW-Authenticate"))
		}
	}
}

// Pages of any origin may read what needs no credential, refusals included, and
// nothing else.
func TestCORS(t *testing.T) {
	c := surfaceClient(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	for _, path := range []string{"/v1/status", "/v1/algorithms", "/openapi.json", "/v1/verify/nothing", "/v1/log/tree-head", "/v1/log/tree-head?tree_size=x", "/v1/log/proof", "/v1/log/consistency?first=0", "/v1/log/status", "/checkpoint", "/tile/x/000"} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			if a := c.Do(method, path, "", nil, "Origin", "https://example.org"); a.Header.Get("Access-Control-Allow-Origin") != "*" || len(a.Header.Values("Access-Control-Allow-Origin")) != 1 {
				t.Errorf("%s %s: Access-Control-Allow-Origin %q", method, path, a.Header.Values("Access-Control-Allow-Origin"))
			}
		}
	}
	for _, call := range []struct{ method, path, token string }{
		{"GET", d.Path(""), d.Key}, {"GET", d.Path("/certificate"), d.Tokens[0]}, {"POST", "/v1/keys", ""}, {"OPTIONS", "/v1/keys", ""}, {"OPTIONS", "/v1/deals", ""}, {"POST", d.Path("/entropy"), d.Key},
	} {
		if a := c.Do(call.method, call.path, call.token, nil, "Origin", "https://example.org"); a.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s allows origin %q", call.method, call.path, a.Header.Get("Access-Control-Allow-Origin"))
		}
	}
}

// No answer is kept by a cache, but for the reads that are asked for again with
// their tag; none is guessed at by a browser, and each can be named.
func TestHeadersOfEveryAnswer(t *testing.T) {
	c := surfaceClient(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	ids := map[string]bool{}
	for _, call := range []struct{ method, path, token, cache string }{
		{"POST", "/v1/keys", "", "no-store"}, {"GET", d.Path(""), d.Key, "private, no-cache"}, {"GET", d.Path(""), "", "no-store"}, {"GET", "/v1/nothing", "", "no-store"},
		{"PUT", "/v1/keys", "", "no-store"}, {"GET", d.Path("/certificate"), d.Tokens[0], "no-store"}, {"GET", "/v1/log/tree-head", "", "public, no-cache"},
		{"GET", "/v1/status", "", "no-store"}, {"GET", "/v1/algorithms", "", "public, no-cache"},
	} {
		a := c.Do(call.method, call.path, call.token, nil)
		if a.Header.Get("Content-Type") != "application/json" || a.Header.Get("Cache-Control") != call.cache || a.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: %v", call.method, call.path, a.Header)
		}
		id := a.Header.Get("X-Request-Id")
		if id == "" || ids[id] {
			t.Errorf("%s %s: X-Request-Id %q", call.method, call.path, id)
		}
		ids[id] = true
	}
}

// What no route is asked for, or no request can be made of, is an error of SPEC
// 7.1 as well.
func TestErrorsBelowTheRoutes(t *testing.T) {
	c := surfaceClient(t)
	for request, code := range map[string]string{
		"GET /v1/deals/%zz HTTP/1.1\r\nHost: x":                        "INVALID_REQUEST",
		"GET /v1/status HTTP/1.1":                                      "INVALID_REQUEST",
		"POST /v1/keys HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip": "INVALID_REQUEST",
		"POST /v1/keys HTTP/1.1\r\nHost: x\r\nExpect: more":            "INVALID_REQUEST",
		"GET * HTTP/1.1\r\nHost: x":                                    "NOT_FOUND",
		"CONNECT x:443 HTTP/1.1\r\nHost: x":                            "NOT_FOUND",
		"CONNECT /v1/status HTTP/1.1\r\nHost: x":                       "NOT_FOUND",
		"GET http://x HTTP/1.1\r\nHost: x":                             "NOT_FOUND",
	} {
		a := asWritten(t, c, request+"\r\nConnection: close\r\n\r\n")
		if a.Status < 400 || a.Code() != code || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%q: %d %s %.200s", request, a.Status, a.Header.Get("Content-Type"), a.Body)
		}
	}
	a, err := c.Try(t.Context(), "GET", "/v1/status", "", nil, "X-Large", strings.Repeat("x", 64<<10))
	for again := 0; err != nil && again < 9; again++ { // a slow client may still send when the server closes the connection
		a, err = c.Try(t.Context(), "GET", "/v1/status", "", nil, "X-Large", strings.Repeat("x", 64<<10))
	}
	if err != nil || a.Status != 431 || a.Code() != "HEADERS_TOO_LARGE" {
		t.Errorf("64 KiB of headers: %v %d %s", err, a.Status, a.Body)
	}
	for _, path := range []string{"/protocol", "/vectors.json", "/", "/openapi.json", "/v1/algorithms"} { // whole to whoever asks for a part
		if a, err := c.Try(t.Context(), "GET", path, "", nil, "Range", "bytes=99999999-"); err != nil || a.Status != 200 {
			t.Errorf("a range of %s: %v %d %.200s", path, err, a.Status, a.Body)
		}
	}
}

// asWritten sends a request as it is written.
func asWritten(t *testing.T, c *e2e.Client, request string) e2e.Answer {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.Base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return e2e.Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
}
