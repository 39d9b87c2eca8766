package api

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// unpacked returns the decompressed body of a response.
func unpacked(t *testing.T, a e2e.Answer) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(a.Body))
	if err != nil {
		t.Fatalf("%v: %v", err, a.Header)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Reads that are polled have an ETag and are not sent again while it is the same. Large
// ones are compressed on request. Other responses are not stored. internal/httpcache
// tests the rules.
func TestCachedReads(t *testing.T) {
	c := newClient(t)
	d := c.Create(random(500, 1000))
	done, _, _ := computed(c)
	for _, read := range []struct {
		path, token, control string
		large                bool
	}{
		{d.Path(""), d.Tokens[0], "private, no-cache", true},
		{d.Path(""), d.Key, "private, no-cache", true},
		{"/v1/algorithms", "", "public, no-cache", true},
		{"/openapi.json", "", "public, no-cache", true},
		{"/v1/log/tree-head?tree_size=0", "", "public, no-cache", false},
	} {
		plain := c.Want(200, "GET", read.path, read.token, nil, "Accept-Encoding", "identity")
		tag := plain.Header.Get("ETag")
		if !strings.HasPrefix(tag, `"`) || plain.Header.Get("Cache-Control") != read.control || !strings.Contains(plain.Header.Get("Vary"), "Accept-Encoding") {
			t.Errorf("%s: %v", read.path, plain.Header)
		}
		for _, method := range []string{"GET", "HEAD"} {
			again := c.Want(304, method, read.path, read.token, nil, "Accept-Encoding", "identity", "If-None-Match", tag)
			if len(again.Body) > 0 || again.Header.Get("ETag") != tag || again.Header.Get("Cache-Control") != read.control {
				t.Errorf("%s %s again: %v", method, read.path, again.Header)
			}
		}
		if !read.large {
			continue
		}
		packed, err := c.Try(t.Context(), "GET", read.path, read.token, nil, "Accept-Encoding", "gzip")
		if err != nil || packed.Header.Get("ETag") == tag || !bytes.Equal(unpacked(t, packed), plain.Body) || 3*len(packed.Body) > len(plain.Body) {
			t.Errorf("%s: %d bytes are compressed to %d: %v %v", read.path, len(plain.Body), len(packed.Body), packed.Header, err)
		}
	}
	if cert := c.Want(200, "GET", done.Path("/certificate"), done.Tokens[0], nil); cert.Header.Get("ETag") == "" || cert.Header.Get("Cache-Control") != "private, no-cache" {
		t.Errorf("certificate: %v", cert.Header)
	}
	for _, call := range []struct{ method, path, token string }{{"POST", "/v1/keys", ""}, {"GET", d.Path(""), ""}, {"GET", "/v1/nothing", ""}, {"PUT", "/v1/keys", ""}, {"GET", "/v1/status", ""}} {
		if a := c.Do(call.method, call.path, call.token, nil); a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %v", call.method, call.path, a.Header)
		}
	}

	before := c.Want(200, "GET", d.Path(""), d.Tokens[1], nil).Header.Get("ETag")
	d.Commit(0, e2e.Seal(t, e2e.Body{"nonce": ""}))
	if after := c.Want(200, "GET", d.Path(""), d.Tokens[1], nil, "If-None-Match", before); after.Header.Get("ETag") == before {
		t.Error("a view that has changed keeps its tag")
	}

	// The credential and the state are checked before the tag.
	c.Refused(401, "AUTH_REQUIRED", "GET", d.Path(""), "", nil, "If-None-Match", before)
	c.Refused(403, "FORBIDDEN", "GET", d.Path(""), done.Tokens[0], nil, "If-None-Match", "*")
	c.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate"), d.Tokens[0], nil, "If-None-Match", "*")
}

// A response with a credential or an input is neither compressed nor cached. Next to
// text that somebody else chose, the compressed size would reveal a secret (BREACH).
func TestSecretsAreNeverCompressed(t *testing.T) {
	c := newClient(t)
	created := c.Want(201, "POST", "/v1/deals", c.Key(), random(100, 1000), "Accept-Encoding", "gzip")
	values := e2e.Body{}
	for i := range 200 {
		values[fmt.Sprintf("item %020d", i)] = 1
	}
	d := c.Create(changed(split(), "mode", "open", "algorithm_params", e2e.Body{"items": slices.Collect(maps.Keys(values))}))
	d.Play(e2e.Body{"valuations": values}, e2e.Body{"valuations": values})
	inputs := c.Want(200, "GET", d.Path("/inputs"), d.Tokens[0], nil, "Accept-Encoding", "gzip")
	for what, a := range map[string]e2e.Answer{"a creation": created, "inputs": inputs, "a key": c.Want(201, "POST", "/v1/keys", "", nil, "Accept-Encoding", "gzip")} {
		if a.Header.Get("Content-Encoding") != "" || a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("ETag") != "" || !json.Valid(a.Body) {
			t.Errorf("%s of %d bytes: %v", what, len(a.Body), a.Header)
		}
	}
}
