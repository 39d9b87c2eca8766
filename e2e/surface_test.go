package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// surfaceClient is a client of the shared stack that follows no redirect and
// lets the service answer before it sends a body that was announced.
func surfaceClient(t testing.TB) *client {
	c := newClient(t, baseURL(t))
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	return c
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"}

// Each path has its methods and answers 405 to the others, with or without a
// credential.
func TestMethodsOfEachPath(t *testing.T) {
	c := surfaceClient(t)
	d := c.create(splitBody(time.Hour, 2*time.Hour))
	for path, allow := range map[string]string{
		"/v1/status":             "GET, HEAD, OPTIONS",
		"/v1/algorithms":         "GET, HEAD, OPTIONS",
		"/openapi.json":          "GET, HEAD, OPTIONS",
		"/v1/verify/nothing":     "GET, HEAD, OPTIONS",
		"/v1/log/tree-head":      "GET, HEAD, OPTIONS",
		"/v1/log/proof":          "GET, HEAD, OPTIONS",
		"/v1/log/consistency":    "GET, HEAD, OPTIONS",
		d.path(""):               "GET, HEAD, OPTIONS",
		d.path("/certificate"):   "GET, HEAD, OPTIONS",
		d.path("/inputs"):        "GET, HEAD, OPTIONS",
		"/v1/keys":               "OPTIONS, POST",
		"/v1/deals":              "OPTIONS, POST",
		d.path("/commit"):        "OPTIONS, POST",
		d.path("/reveal"):        "OPTIONS, POST",
		d.path("/entropy"):       "OPTIONS, POST",
		d.path("/cancel"):        "OPTIONS, POST",
		"/v1/deals/none/commit":  "OPTIONS, POST",
		"/v1/deals/none/inputs":  "GET, HEAD, OPTIONS",
		"/v1/deals/none":         "GET, HEAD, OPTIONS",
		"/v1/deals/none/entropy": "OPTIONS, POST",
	} {
		for _, method := range methods {
			switch a := c.do(method, path, "", nil); {
			case method == "OPTIONS":
				if a.status != 204 || a.header.Get("Allow") != allow {
					t.Errorf("OPTIONS %s: %d, Allow %q, want 204, %q", path, a.status, a.header.Get("Allow"), allow)
				}
			case strings.Contains(allow, method):
				if a.status == 405 || a.header.Get("Allow") != "" {
					t.Errorf("%s %s: %d", method, path, a.status)
				}
			case a.status != 405 || a.header.Get("Allow") != allow:
				t.Errorf("%s %s: %d, Allow %q, want 405, %q", method, path, a.status, a.header.Get("Allow"), allow)
			}
		}
	}
}

// No such path is 404 with an error body, whoever asks and however; nothing
// redirects.
func TestPathsThatDoNotExist(t *testing.T) {
	c := surfaceClient(t)
	d := c.create(splitBody(time.Hour, 2*time.Hour))
	for _, path := range []string{
		"/v1", "/v1/", "/v1/nothing", "/v2/status", "/v1/status/", "/v1//status", "//v1/status", "/v1/./status", "/v1/x/../status", "/V1/STATUS",
		"/v1/status/more", "/v1/keys/", "/v1/deals/", "/v1/deals//commit", "/v1/verify", "/v1/verify/", "/v1/verify/a/b", "/v1/log", "/v1/log/", "/v1/log/nothing",
		"/v1/log/tree-head/", d.path("/"), d.path("/nothing"), d.path("/commit/"), d.path("/commit/more"), d.path("/../../status"), "/openapi.json/", "/openapi",
		"/v1/deals/%2e%2e", "/v1/deals/%2e%2e/commit",
	} {
		for _, method := range methods {
			for _, token := range []string{"", d.Key, d.Tokens[0]} {
				a := c.do(method, path, token, nil)
				if a.status != 404 || method != "HEAD" && strings.HasPrefix(path, "/v1") && a.code() != "NOT_FOUND" {
					t.Errorf("%s %s: %d %.200s", method, path, a.status, a.body)
				}
				if to := a.header.Get("Location"); to != "" {
					t.Errorf("%s %s redirects to %s", method, path, to)
				}
			}
		}
	}
}

// HEAD is GET without its body.
func TestHead(t *testing.T) {
	c := surfaceClient(t)
	d := c.create(splitBody(time.Hour, 2*time.Hour))
	for _, call := range []struct{ path, token string }{
		{"/v1/status", ""}, {"/v1/algorithms", ""}, {"/openapi.json", ""}, {"/v1/log/tree-head", ""}, {"/v1/log/proof", ""}, {"/v1/log/consistency?first=0", ""},
		{"/v1/verify/nothing", ""}, {d.path(""), d.Key}, {d.path(""), d.Tokens[1]}, {d.path(""), ""}, {d.path(""), "it_unknown"}, {d.path("/certificate"), d.Tokens[0]},
		{d.path("/certificate"), d.Key}, {d.path("/inputs"), d.Tokens[0]}, {"/v1/deals/none", d.Key},
	} {
		get, head := c.do("GET", call.path, call.token, nil), c.do("HEAD", call.path, call.token, nil)
		if head.status != get.status || len(head.body) != 0 || head.header.Get("Content-Type") != "application/json" {
			t.Errorf("HEAD %s: %d with %d bytes of %s; GET: %d", call.path, head.status, len(head.body), head.header.Get("Content-Type"), get.status)
		}
		if get.header.Get("WWW-Authenticate") != head.header.Get("WWW-Authenticate") {
			t.Errorf("HEAD %s: WWW-Authenticate %q", call.path, head.header.Get("WWW-Authenticate"))
		}
	}
}

// Pages of any origin may read what needs no credential, refusals included, and
// nothing else.
func TestCORS(t *testing.T) {
	c := surfaceClient(t)
	d := c.create(splitBody(time.Hour, 2*time.Hour))
	for _, path := range []string{"/v1/status", "/v1/algorithms", "/openapi.json", "/v1/verify/nothing", "/v1/log/tree-head", "/v1/log/tree-head?tree_size=x", "/v1/log/proof", "/v1/log/consistency?first=0"} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			if a := c.do(method, path, "", nil, "Origin", "https://example.org"); a.header.Get("Access-Control-Allow-Origin") != "*" || len(a.header.Values("Access-Control-Allow-Origin")) != 1 {
				t.Errorf("%s %s: Access-Control-Allow-Origin %q", method, path, a.header.Values("Access-Control-Allow-Origin"))
			}
		}
	}
	for _, call := range []struct{ method, path, token string }{
		{"GET", d.path(""), d.Key}, {"GET", d.path("/certificate"), d.Tokens[0]}, {"POST", "/v1/keys", ""}, {"OPTIONS", "/v1/keys", ""}, {"OPTIONS", "/v1/deals", ""}, {"POST", d.path("/entropy"), d.Key},
	} {
		if a := c.do(call.method, call.path, call.token, nil, "Origin", "https://example.org"); a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s allows origin %q", call.method, call.path, a.header.Get("Access-Control-Allow-Origin"))
		}
	}
}

// No answer is kept by a cache, but for the reads that are asked for again with
// their tag; none is guessed at by a browser, and each can be named.
func TestHeadersOfEveryAnswer(t *testing.T) {
	c := surfaceClient(t)
	d := c.create(splitBody(time.Hour, 2*time.Hour))
	ids := map[string]bool{}
	for _, call := range []struct{ method, path, token, cache string }{
		{"POST", "/v1/keys", "", "no-store"}, {"GET", d.path(""), d.Key, "private, no-cache"}, {"GET", d.path(""), "", "no-store"}, {"GET", "/v1/nothing", "", "no-store"},
		{"PUT", "/v1/keys", "", "no-store"}, {"GET", d.path("/certificate"), d.Tokens[0], "no-store"}, {"GET", "/v1/log/tree-head", "", "public, no-cache"},
		{"GET", "/v1/status", "", "no-store"}, {"GET", "/v1/algorithms", "", "public, no-cache"},
	} {
		a := c.do(call.method, call.path, call.token, nil)
		if a.header.Get("Content-Type") != "application/json" || a.header.Get("Cache-Control") != call.cache || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: %v", call.method, call.path, a.header)
		}
		id := a.header.Get("X-Request-Id")
		if id == "" || ids[id] {
			t.Errorf("%s %s: X-Request-Id %q", call.method, call.path, id)
		}
		ids[id] = true
	}
}
