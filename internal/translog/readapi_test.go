package translog

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func send(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	check(t, err)
	response, err := http.DefaultTransport.RoundTrip(request) // follows no redirect
	check(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(t, err)
	return response, string(body)
}

func TestReadPort(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	waitForHead(t, l, 0)
	fill(t, l, 0, 2)
	fill(t, l, 2, 3)
	server := httptest.NewServer(l.ReadHandler())
	defer server.Close()
	head := func(size int64) TreeHead { return waitForHead(t, l, size) }
	leaves := data(0, 3)
	path := func(index, size uint64) []string {
		path, err := reference(leaves).InclusionProof(index, size)
		check(t, err)
		return toHex(path)
	}
	grown, err := reference(leaves).ConsistencyProof(2, 3)
	check(t, err)
	entry := hex.EncodeToString(leaves[1])

	for _, c := range []struct {
		url  string
		want any
	}{
		{"/v1/log/tree-head", head(3)},
		{"/v1/log/tree-head?tree_size=2", head(2)},
		{"/v1/log/tree-head?tree_size=0", head(0)},
		{"/v1/log/tree-head?unknown=1", head(3)},
		{"/v1/log/proof?leaf_index=1", Inclusion{head(3), 1, entry, path(1, 3)}},
		{"/v1/log/proof?leaf_index=1&tree_size=2", Inclusion{head(2), 1, entry, path(1, 2)}},
		{"/v1/log/proof?entry=" + entry, Inclusion{head(3), 1, entry, path(1, 3)}},
		{"/v1/log/proof?leaf_index=1&entry=" + entry, Inclusion{head(3), 1, entry, path(1, 3)}},
		{"/v1/log/consistency?first=2&second=3", Consistency{head(2), head(3), toHex(grown)}},
		{"/v1/log/consistency?first=2", Consistency{head(2), head(3), toHex(grown)}},
		{"/v1/log/consistency?first=0&second=2", Consistency{head(0), head(2), []string{}}},
		{"/v1/log/consistency?first=3&second=3", Consistency{head(3), head(3), []string{}}},
	} {
		want, err := json.Marshal(c.want)
		check(t, err)
		response, body := send(t, "GET", server.URL+c.url)
		if response.StatusCode != 200 || strings.TrimSpace(body) != string(want) {
			t.Errorf("GET %s: %d %s\nwant %s", c.url, response.StatusCode, body, want)
		}
		if h := response.Header; h.Get("Content-Type") != "application/json" || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("GET %s: headers %v", c.url, h)
		}
		same, empty := send(t, "HEAD", server.URL+c.url)
		if same.StatusCode != 200 || empty != "" || same.ContentLength != response.ContentLength {
			t.Errorf("HEAD %s: %d, %d bytes announced, body %q", c.url, same.StatusCode, same.ContentLength, empty)
		}
	}
}

func TestReadPortRefusals(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	fill(t, l, 0, 3)
	server := httptest.NewServer(l.ReadHandler())
	defer server.Close()
	absent := fmt.Sprintf("%x", entryOf(99))

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
		{"GET", "/v1/log/tree-head?tree_size=2", 404, "HEAD_NOT_FOUND"},
		{"GET", "/v1/log/tree-head?tree_size=9007199254740991", 404, "HEAD_NOT_FOUND"},
		{"GET", "/v1/log/tree-head?tree_size=9007199254740992", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/tree-head?tree_size=-1", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/tree-head?tree_size=+3", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/tree-head?tree_size=03", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/tree-head?tree_size=", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/tree-head?tree_size=3&tree_size=3", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/tree-head?tree_size=%zz", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/proof", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/proof?tree_size=3", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/proof?leaf_index=x", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/proof?leaf_index=3", 404, "LEAF_NOT_FOUND"},
		{"GET", "/v1/log/proof?leaf_index=0&tree_size=2", 404, "HEAD_NOT_FOUND"},
		{"GET", "/v1/log/proof?leaf_index=0&tree_size=0", 404, "LEAF_NOT_FOUND"},
		{"GET", "/v1/log/proof?entry=" + absent, 404, "LEAF_NOT_FOUND"},
		{"GET", "/v1/log/proof?leaf_index=1&entry=" + absent, 404, "LEAF_NOT_FOUND"},
		{"GET", "/v1/log/proof?entry=" + strings.ToUpper(absent), 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/proof?entry=" + absent[1:], 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/consistency", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/consistency?second=3", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/consistency?first=3&second=0", 400, "INVALID_REQUEST"},
		{"GET", "/v1/log/consistency?first=2&second=3", 404, "HEAD_NOT_FOUND"},
	} {
		response, body := send(t, c.method, server.URL+c.url)
		if response.StatusCode != c.status || !strings.HasPrefix(body, `{"error":"`+c.code+": ") {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.url, response.StatusCode, body, c.status, c.code)
		}
		if response.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s %s: no CORS header", c.method, c.url)
		}
		if c.status == 405 && response.Header.Get("Allow") != "GET, HEAD, OPTIONS" {
			t.Errorf("%s %s: Allow is %q", c.method, c.url, response.Header.Get("Allow"))
		}
	}
	response, body := send(t, "OPTIONS", server.URL+"/v1/log/proof")
	if response.StatusCode != 204 || body != "" || response.Header.Get("Allow") != "GET, HEAD, OPTIONS" || response.Header.Get("Access-Control-Allow-Methods") != "GET, HEAD, OPTIONS" {
		t.Errorf("OPTIONS: %d %v", response.StatusCode, response.Header)
	}

	asOwner(t, d, flip("leaves", "entry", "leaf_index = 1"))
	response, body = send(t, "GET", server.URL+"/v1/log/proof?leaf_index=1")
	if response.StatusCode != 503 || !strings.HasPrefix(body, `{"error":"LOG_INCONSISTENT: `) {
		t.Errorf("a tampered log: %d %s", response.StatusCode, body)
	}
	d.pool.Close()
	response, body = send(t, "GET", server.URL+"/v1/log/tree-head")
	if response.StatusCode != 503 || !strings.HasPrefix(body, `{"error":"UNAVAILABLE: `) || response.Header.Get("Retry-After") != "1" {
		t.Errorf("without a database: %d %s", response.StatusCode, body)
	}
}
