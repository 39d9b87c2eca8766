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

func unpacked(t *testing.T, a e2e.Answer) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(a.Body))
	if err != nil {
		t.Fatalf("decompress a response with header %v: %v", a.Header, err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A read that clients poll has an ETag, and returns 304 if the client sends the current ETag. Large
// responses are compressed on request. Caches must not store errors or the responses of calls such
// as POST /v1/keys and GET /v1/status.
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
		{"/v1/beacon", "", "public, no-cache", false},
		{"/v1/log/tree-head?tree_size=0", "", "public, no-cache", false},
	} {
		plain := c.Want(200, "GET", read.path, read.token, nil, "Accept-Encoding", "identity")
		tag := plain.Header.Get("ETag")
		if !strings.HasPrefix(tag, `"`) || plain.Header.Get("Cache-Control") != read.control || !strings.Contains(plain.Header.Get("Vary"), "Accept-Encoding") {
			t.Errorf("GET %s: header %v, want an ETag, Cache-Control %s and Vary Accept-Encoding", read.path, plain.Header, read.control)
		}
		for _, method := range []string{"GET", "HEAD"} {
			again := c.Want(304, method, read.path, read.token, nil, "Accept-Encoding", "identity", "If-None-Match", tag)
			if len(again.Body) > 0 || again.Header.Get("ETag") != tag || again.Header.Get("Cache-Control") != read.control {
				t.Errorf("304 for %s %s: %d bytes, header %v, want no body, ETag %s and Cache-Control %s", method, read.path, len(again.Body), again.Header, tag, read.control)
			}
		}
		if !read.large {
			continue
		}
		packed, err := c.Try(t.Context(), "GET", read.path, read.token, nil, "Accept-Encoding", "gzip")
		if err != nil || packed.Header.Get("ETag") == tag || !bytes.Equal(unpacked(t, packed), plain.Body) || 3*len(packed.Body) > len(plain.Body) {
			t.Errorf("GET %s with gzip: %d bytes of %d, header %v (%v), want the same text in a third of the size, with another ETag", read.path, len(packed.Body), len(plain.Body), packed.Header, err)
		}
	}
	cert := c.Want(200, "GET", done.Path("/certificate"), done.Tokens[0], nil)
	if cert.Header.Get("ETag") == "" || cert.Header.Get("Cache-Control") != "private, no-cache" {
		t.Errorf("GET certificate: header %v, want an ETag and Cache-Control private, no-cache", cert.Header)
	}
	computed(c) // the log grows, so a certificate is served with another proof
	for _, token := range done.Tokens {
		if a := c.Want(304, "GET", done.Path("/certificate"), token, nil, "If-None-Match", cert.Header.Get("ETag")); len(a.Body) > 0 || a.Header.Get("ETag") != cert.Header.Get("ETag") {
			t.Errorf("304 for a certificate: %d bytes, header %v, want no body and the same ETag", len(a.Body), a.Header)
		}
	}
	for _, call := range []struct{ method, path, token string }{{"POST", "/v1/keys", ""}, {"GET", d.Path(""), ""}, {"GET", "/v1/nothing", ""}, {"PUT", "/v1/keys", ""}, {"GET", "/v1/status", ""}} {
		if a := c.Do(call.method, call.path, call.token, nil); a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: header %v, want Cache-Control no-store and Content-Type application/json", call.method, call.path, a.Header)
		}
	}

	before := c.Want(200, "GET", d.Path(""), d.Tokens[1], nil).Header.Get("ETag")
	d.Commit(0, e2e.Seal(t, e2e.Body{"nonce": ""}))
	if after := c.Want(200, "GET", d.Path(""), d.Tokens[1], nil, "If-None-Match", before); after.Header.Get("ETag") == before {
		t.Errorf("the view has changed and still has the ETag %s", before)
	}

	// The credential and the state are checked before the ETag.
	c.Refused(401, "AUTH_REQUIRED", "GET", d.Path(""), "", nil, "If-None-Match", before)
	c.Refused(403, "FORBIDDEN", "GET", d.Path(""), done.Tokens[0], nil, "If-None-Match", "*")
	c.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate"), d.Tokens[0], nil, "If-None-Match", "*")
}

// A response with a credential or an input is neither compressed nor cached. If a secret is
// compressed together with an attacker's text, the size can reveal the secret (BREACH).
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
			t.Errorf("%s of %d bytes: header %v, want Cache-Control no-store, no Content-Encoding and no ETag", what, len(a.Body), a.Header)
		}
	}
}

// A HEAD of an answer that can be large has the status of the GET, and costs only the checks.
func TestHeadOfLargeReads(t *testing.T) {
	c := newClient(t)
	done := c.Create(e2e.Retained(split(), "open", "standard"))
	compare := func(when string, paths ...string) {
		t.Helper()
		for _, path := range paths {
			get, head := c.Do("GET", path, done.Tokens[0], nil), c.Do("HEAD", path, done.Tokens[0], nil)
			if head.Status != get.Status || len(head.Body) != 0 || head.Header.Get("Cache-Control") != "no-store" || head.Header.Get("Content-Type") != get.Header.Get("Content-Type") {
				t.Errorf("%s: HEAD %s: %d with %v and %d bytes, want %d with %v", when, path, head.Status, head.Header, len(head.Body), get.Status, get.Header)
			}
		}
	}
	paths := []string{done.Path("/certificate"), done.Path("/bundle"), done.Path("/inputs"), done.Path("/seals"), done.Path("/declaration")}
	compare("OPEN", append(paths, "/v1/verify/c_0000000000000000000000")...)
	done.Play(e2e.Body{"valuations": e2e.Body{"car": 60, "boat": 40}}, e2e.Body{"valuations": e2e.Body{"car": 30, "boat": 70}})
	done.Certified(e2e.DefaultTimeout)
	compare("COMPUTED", append(paths, "/v1/verify/"+*done.View().CertificateID)...)
	c.Refused(403, "FORBIDDEN", "GET", done.Path("/bundle"), done.Key, nil)
	if a := c.Do("HEAD", done.Path("/bundle"), done.Key, nil); a.Status != 403 {
		t.Errorf("HEAD of a bundle by the initiator's key: %d, want 403", a.Status)
	}
}
