package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"}

// Every path of the OpenAPI document accepts its documented methods and OPTIONS. HEAD is
// GET without the body. Other methods get a 405, with and without a credential. Any origin may
// read paths that need no credential.
func TestEveryDocumentedPath(t *testing.T) {
	c := newClient(t)
	d := c.Create(split())
	ids := map[string]bool{}
	checkHeaders := func(method, path string, a e2e.Answer) {
		t.Helper()
		if a.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: header %v, want X-Content-Type-Options nosniff", method, path, a.Header)
		}
		if id := a.Header.Get("X-Request-Id"); id == "" || ids[id] {
			t.Errorf("%s %s: X-Request-Id %q is missing or repeated", method, path, id)
		} else {
			ids[id] = true
		}
	}
	for _, documented := range e2e.Published(t, c).Paths() {
		for _, id := range []string{d.ID, "none"} {
			if id == "none" && !strings.Contains(documented.Path, "{id}") {
				continue
			}
			path := strings.NewReplacer("{id}", id, "{cert_id}", id, "{level}/{index}", "0/000.p/1").Replace(documented.Path)
			accepted := append(slices.Clone(documented.Methods), "OPTIONS")
			readable := slices.Contains(accepted, "GET")
			if readable {
				accepted = append(accepted, "HEAD")
			}
			slices.Sort(accepted)
			allow := strings.Join(accepted, ", ")
			origin := "" // the expected Access-Control-Allow-Origin
			if readable && documented.Public {
				origin = "*"
			}
			for _, token := range []string{"", d.Key, d.Tokens[0]} {
				var get e2e.Answer
				for _, method := range methods {
					a := c.Do(method, path, token, nil, "Origin", "https://example.org")
					checkHeaders(method, path, a)
					switch {
					case method == "OPTIONS" && (a.Status != 204 || a.Header.Get("Allow") != allow),
						!slices.Contains(accepted, method) && (a.Status != 405 || a.Header.Get("Allow") != allow),
						method != "OPTIONS" && slices.Contains(accepted, method) && (a.Status == 405 || a.Header.Get("Allow") != ""):
						t.Errorf("%s %s: %d with Allow %q; only a 405 and OPTIONS have one, which is %q", method, path, a.Status, a.Header.Get("Allow"), allow)
					}
					if got := a.Header.Values("Access-Control-Allow-Origin"); slices.Contains(accepted, method) && strings.Join(got, " ") != origin {
						t.Errorf("%s %s: Access-Control-Allow-Origin %q, want %q", method, path, got, origin)
					}
					if got := a.Header.Get("Access-Control-Allow-Methods"); (got != "") != (method == "OPTIONS" && origin != "") {
						t.Errorf("%s %s: Access-Control-Allow-Methods %q", method, path, got)
					}
					if method == "GET" {
						get = a
					}
					if method == "HEAD" && readable && (a.Status != get.Status || len(a.Body) != 0 || a.Header.Get("Content-Type") != get.Header.Get("Content-Type") ||
						a.Header.Get("WWW-Authenticate") != get.Header.Get("WWW-Authenticate")) {
						t.Errorf("HEAD %s: %d with header %v and %d bytes, want no body and, as for GET, %d with header %v", path, a.Status, a.Header, len(a.Body), get.Status, get.Header)
					}
				}
			}
		}
	}
}

func TestPathsThatDoNotExist(t *testing.T) {
	c := newClient(t)
	d := c.Create(split())
	for _, path := range []string{
		"/v1", "/v1/", "/v1/nothing", "/v2/status", "/v1/status/", "/v1//status", "//v1/status", "/v1/./status", "/v1/x/../status", "/V1/STATUS",
		"/v1/status/more", "/v1/keys/", "/v1/deals/", "/v1/deals//commit", "/v1/verify/", "/v1/verify/a/b", "/v1/log", "/v1/log/", "/v1/log/nothing",
		"/v1/log/tree-head/", d.Path("/"), d.Path("/nothing"), d.Path("/commit/"), d.Path("/commit/more"), d.Path("/../../status"), "/openapi.json/", "/openapi",
		"/v1/deals/%2e%2e", "/v1/deals/%2e%2e/commit",
	} {
		for _, method := range methods {
			for _, token := range []string{"", d.Key} {
				a := c.Do(method, path, token, nil)
				if a.Status != 404 || method != "HEAD" && strings.HasPrefix(path, "/v1") && a.Code() != "NOT_FOUND" {
					t.Errorf("%s %s: %d %.200s, want 404 NOT_FOUND", method, path, a.Status, a.Body)
				}
				if to := a.Header.Get("Location"); to != "" {
					t.Errorf("%s %s redirects to %s", method, path, to)
				}
			}
		}
	}
}

// A request that reaches no route, or is not valid HTTP, also gets an error in the form of
// SPEC 7.1.
func TestErrorsBelowTheRoutes(t *testing.T) {
	c := newClient(t)
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
		a := sendRaw(t, c, request+"\r\nConnection: close\r\n\r\n")
		if a.Status < 400 || a.Code() != code || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("request %q: %d %s %.200s, want the error %s as JSON", request, a.Status, a.Header.Get("Content-Type"), a.Body, code)
		}
	}
	a, err := c.Try(t.Context(), "GET", "/v1/status", "", nil, "X-Large", strings.Repeat("x", 64<<10))
	for again := 0; err != nil && again < 9; again++ { // the server may close the connection while a slow client still sends
		a, err = c.Try(t.Context(), "GET", "/v1/status", "", nil, "X-Large", strings.Repeat("x", 64<<10))
	}
	if err != nil || a.Status != 431 || a.Code() != "HEADERS_TOO_LARGE" {
		t.Errorf("64 KiB of headers: %d %s (%v), want 431 HEADERS_TOO_LARGE", a.Status, a.Body, err)
	}
	for _, path := range []string{"/protocol", "/vectors.json", "/", "/openapi.json", "/v1/algorithms"} {
		if a, err := c.Try(t.Context(), "GET", path, "", nil, "Range", "bytes=99999999-"); err != nil || a.Status != 200 {
			t.Errorf("GET %s with a Range: %d %.200s (%v), want 200", path, a.Status, a.Body, err)
		}
	}
}

func sendRaw(t *testing.T, c *e2e.Client, request string) e2e.Answer {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.Base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
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
