package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// compressed reads with gzip and leaves it to the caller to unpack.
func compressed(t *testing.T, c *client, path, token string) answer {
	t.Helper()
	a, err := c.try(t.Context(), "GET", path, token, nil, "Accept-Encoding", "gzip")
	if err != nil || a.status != 200 {
		t.Fatalf("GET %s: %d %v", path, a.status, err)
	}
	return a
}

func unpacked(t *testing.T, a answer) []byte {
	t.Helper()
	if a.header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("not compressed: %v", a.header)
	}
	r, err := gzip.NewReader(bytes.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Reads that are polled cost little: the same bytes have the same tag and are
// not sent again; other bytes have another.
func TestReadsAreRevalidated(t *testing.T) {
	c := newClient(t, baseURL(t))
	d := c.create(splitBody(time.Hour, 2*time.Hour))
	done := c.create(splitBody(time.Hour, 2*time.Hour))
	done.play(body{"valuations": body{"car": 1}}, body{"valuations": body{"boat": 1}})
	for _, read := range []struct{ path, token, control string }{
		{d.path(""), d.Tokens[0], "private, no-cache"},
		{d.path(""), d.Key, "private, no-cache"},
		{"/v1/algorithms", "", "public, no-cache"},
		{"/openapi.json", "", "public, no-cache"},
		{"/v1/log/tree-head?tree_size=0", "", "public, no-cache"},
	} {
		first := c.want(200, "GET", read.path, read.token, nil, "Accept-Encoding", "identity")
		tag := first.header.Get("ETag")
		if !strings.HasPrefix(tag, `"`) || first.header.Get("Cache-Control") != read.control || !strings.Contains(first.header.Get("Vary"), "Accept-Encoding") {
			t.Fatalf("%s: %v", read.path, first.header)
		}
		for _, method := range []string{"GET", "HEAD"} {
			again := c.want(304, method, read.path, read.token, nil, "If-None-Match", tag)
			if len(again.body) > 0 || again.header.Get("ETag") != tag || again.header.Get("Cache-Control") != read.control {
				t.Errorf("%s %s again: %v", method, read.path, again.header)
			}
			if head := c.want(200, method, read.path, read.token, nil, "Accept-Encoding", "identity", "If-None-Match", `"another"`); head.header.Get("ETag") != tag {
				t.Errorf("%s %s: tag %s, then %s", method, read.path, tag, head.header.Get("ETag"))
			}
		}
	}

	before := c.want(200, "GET", d.path(""), d.Tokens[1], nil).header.Get("ETag")
	d.commit(0, seal(t, body{"valuations": body{"car": 1}}))
	after := c.want(200, "GET", d.path(""), d.Tokens[1], nil, "If-None-Match", before)
	if after.header.Get("ETag") == before {
		t.Error("a view that has changed keeps its tag")
	}

	// A tag opens nothing: the credential is looked at first.
	c.refused(401, "AUTH_REQUIRED", "GET", d.path(""), "", nil, "If-None-Match", after.header.Get("ETag"))
	c.refused(403, "FORBIDDEN", "GET", d.path(""), done.Tokens[0], nil, "If-None-Match", "*")
	c.refused(409, "CERT_NOT_READY", "GET", d.path("/certificate"), d.Tokens[0], nil, "If-None-Match", "*")
	if cert := c.want(200, "GET", done.path("/certificate"), done.Tokens[0], nil); cert.header.Get("ETag") == "" || cert.header.Get("Cache-Control") != "private, no-cache" {
		t.Errorf("certificate: %v", cert.header)
	}
}

// What is large is compressed for who takes it, and is the same then.
func TestLargeReadsAreCompressed(t *testing.T) {
	c := newClient(t, baseURL(t))
	d := c.create(randomBody(500, 1000, time.Hour, 2*time.Hour))
	for _, read := range []struct{ path, token string }{{d.path(""), d.Tokens[0]}, {"/v1/algorithms", ""}, {"/openapi.json", ""}} {
		plain := c.want(200, "GET", read.path, read.token, nil, "Accept-Encoding", "identity")
		packed := compressed(t, c, read.path, read.token)
		if !bytes.Equal(unpacked(t, packed), plain.body) || !json.Valid(plain.body) {
			t.Errorf("%s: the compressed bytes are others", read.path)
		}
		if 3*len(packed.body) > len(plain.body) {
			t.Errorf("%s: %d bytes compress to %d", read.path, len(plain.body), len(packed.body))
		}
		tag := packed.header.Get("ETag")
		if tag == plain.header.Get("ETag") {
			t.Errorf("%s: one strong tag for two encodings", read.path)
		}
		if again := c.want(304, "GET", read.path, read.token, nil, "Accept-Encoding", "gzip", "If-None-Match", tag); again.header.Get("ETag") != tag {
			t.Errorf("%s again: %v", read.path, again.header)
		}
	}
}

// No answer that shows a credential or an input is compressed or kept: beside
// text that another chose, the size of compressed bytes tells what they hold.
func TestSecretsAreNeverCompressed(t *testing.T) {
	c := newClient(t, baseURL(t))
	request := randomBody(100, 1000, time.Hour, 2*time.Hour)
	created := c.want(201, "POST", "/v1/deals", c.key(), request, "Accept-Encoding", "gzip")
	open := splitBody(time.Hour, 2*time.Hour)
	open["mode"] = "open"
	items := make([]string, 200)
	values := body{}
	for i := range items {
		items[i] = strings.Repeat("item", 5) + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		values[items[i]] = 1
	}
	open["algorithm_params"] = body{"items": items}
	d := c.create(open)
	d.play(body{"valuations": values}, body{"valuations": values})
	inputs := c.want(200, "GET", d.path("/inputs"), d.Tokens[0], nil, "Accept-Encoding", "gzip")
	for what, a := range map[string]answer{"a creation": created, "inputs": inputs, "a key": c.want(201, "POST", "/v1/keys", "", nil, "Accept-Encoding", "gzip")} {
		if a.header.Get("Content-Encoding") != "" || a.header.Get("Cache-Control") != "no-store" || a.header.Get("ETag") != "" || !json.Valid(a.body) {
			t.Errorf("%s of %d bytes: %v", what, len(a.body), a.header)
		}
	}
}
