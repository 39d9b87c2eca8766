package api

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// compressed reads with gzip and leaves it to the caller to unpack.
func compressed(t *testing.T, c *e2e.Client, path, token string) e2e.Answer {
	t.Helper()
	a, err := c.Try(t.Context(), "GET", path, token, nil, "Accept-Encoding", "gzip")
	if err != nil || a.Status != 200 {
		t.Fatalf("GET %s: %d %v", path, a.Status, err)
	}
	return a
}

func unpacked(t *testing.T, a e2e.Answer) []byte {
	t.Helper()
	if a.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("not compressed: %v", a.Header)
	}
	r, err := gzip.NewReader(bytes.NewReader(a.Body))
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
	c := e2e.NewClient(t, e2e.BaseURL(t))
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	done := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	done.Play(e2e.Body{"valuations": e2e.Body{"car": 1}}, e2e.Body{"valuations": e2e.Body{"boat": 1}})
	for _, read := range []struct{ path, token, control string }{
		{d.Path(""), d.Tokens[0], "private, no-cache"},
		{d.Path(""), d.Key, "private, no-cache"},
		{"/v1/algorithms", "", "public, no-cache"},
		{"/openapi.json", "", "public, no-cache"},
		{"/v1/log/tree-head?tree_size=0", "", "public, no-cache"},
	} {
		first := c.Want(200, "GET", read.path, read.token, nil, "Accept-Encoding", "identity")
		tag := first.Header.Get("ETag")
		if !strings.HasPrefix(tag, `"`) || first.Header.Get("Cache-Control") != read.control || !strings.Contains(first.Header.Get("Vary"), "Accept-Encoding") {
			t.Fatalf("%s: %v", read.path, first.Header)
		}
		for _, method := range []string{"GET", "HEAD"} {
			again := c.Want(304, method, read.path, read.token, nil, "If-None-Match", tag)
			if len(again.Body) > 0 || again.Header.Get("ETag") != tag || again.Header.Get("Cache-Control") != read.control {
				t.Errorf("%s %s again: %v", method, read.path, again.Header)
			}
			if head := c.Want(200, method, read.path, read.token, nil, "Accept-Encoding", "identity", "If-None-Match", `"another"`); head.Header.Get("ETag") != tag {
				t.Errorf("%s %s: tag %s, then %s", method, read.path, tag, head.Header.Get("ETag"))
			}
		}
	}

	before := c.Want(200, "GET", d.Path(""), d.Tokens[1], nil).Header.Get("ETag")
	d.Commit(0, e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 1}}))
	after := c.Want(200, "GET", d.Path(""), d.Tokens[1], nil, "If-None-Match", before)
	if after.Header.Get("ETag") == before {
		t.Error("a view that has changed keeps its tag")
	}

	// A tag opens nothing: the credential is looked at first.
	c.Refused(401, "AUTH_REQUIRED", "GET", d.Path(""), "", nil, "If-None-Match", after.Header.Get("ETag"))
	c.Refused(403, "FORBIDDEN", "GET", d.Path(""), done.Tokens[0], nil, "If-None-Match", "*")
	c.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate"), d.Tokens[0], nil, "If-None-Match", "*")
	if cert := c.Want(200, "GET", done.Path("/certificate"), done.Tokens[0], nil); cert.Header.Get("ETag") == "" || cert.Header.Get("Cache-Control") != "private, no-cache" {
		t.Errorf("certificate: %v", cert.Header)
	}
}

// What is large is compressed for who takes it, and is the same then.
func TestLargeReadsAreCompressed(t *testing.T) {
	c := e2e.NewClient(t, e2e.BaseURL(t))
	d := c.Create(e2e.RandomBody(500, 1000, time.Hour, 2*time.Hour))
	for _, read := range []struct{ path, token string }{{d.Path(""), d.Tokens[0]}, {"/v1/algorithms", ""}, {"/openapi.json", ""}} {
		plain := c.Want(200, "GET", read.path, read.token, nil, "Accept-Encoding", "identity")
		packed := compressed(t, c, read.path, read.token)
		if !bytes.Equal(unpacked(t, packed), plain.Body) || !json.Valid(plain.Body) {
			t.Errorf("%s: the compressed bytes are others", read.path)
		}
		if 3*len(packed.Body) > len(plain.Body) {
			t.Errorf("%s: %d bytes compress to %d", read.path, len(plain.Body), len(packed.Body))
		}
		tag := packed.Header.Get("ETag")
		if tag == plain.Header.Get("ETag") {
			t.Errorf("%s: one strong tag for two encodings", read.path)
		}
		if again := c.Want(304, "GET", read.path, read.token, nil, "Accept-Encoding", "gzip", "If-None-Match", tag); again.Header.Get("ETag") != tag {
			t.Errorf("%s again: %v", read.path, again.Header)
		}
	}
}

// No answer that shows a credential or an input is compressed or kept: beside
// text that another chose, the size of compressed bytes tells what they hold.
func TestSecretsAreNeverCompressed(t *testing.T) {
	c := e2e.NewClient(t, e2e.BaseURL(t))
	request := e2e.RandomBody(100, 1000, time.Hour, 2*time.Hour)
	created := c.Want(201, "POST", "/v1/deals", c.Key(), request, "Accept-Encoding", "gzip")
	open := e2e.SplitBody(time.Hour, 2*time.Hour)
	open["mode"] = "open"
	items := make([]string, 200)
	values := e2e.Body{}
	for i := range items {
		items[i] = strings.Repeat("item", 5) + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		values[items[i]] = 1
	}
	open["algorithm_params"] = e2e.Body{"items": items}
	d := c.Create(open)
	d.Play(e2e.Body{"valuations": values}, e2e.Body{"valuations": values})
	inputs := c.Want(200, "GET", d.Path("/inputs"), d.Tokens[0], nil, "Accept-Encoding", "gzip")
	for what, a := range map[string]e2e.Answer{"a creation": created, "inputs": inputs, "a key": c.Want(201, "POST", "/v1/keys", "", nil, "Accept-Encoding", "gzip")} {
		if a.Header.Get("Content-Encoding") != "" || a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("ETag") != "" || !json.Valid(a.Body) {
			t.Errorf("%s of %d bytes: %v", what, len(a.Body), a.Header)
		}
	}
}
