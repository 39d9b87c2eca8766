package translog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const secret = "correct horse battery staple"

// ports serves a replica and gives a client of it.
func ports(t *testing.T, l *Log) (client *Client, appendURL, readURL string) {
	t.Helper()
	a, r := httptest.NewServer(l.AppendHandler(secret)), httptest.NewServer(l.ReadHandler())
	t.Cleanup(a.Close)
	t.Cleanup(r.Close)
	return NewClient(a.URL+"/", r.URL, secret), a.URL, r.URL
}

func TestClient(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	client, appendURL, readURL := ports(t, l)
	ctx := within(t, time.Minute)
	for n := range 3 {
		for range 2 {
			index, err := client.Append(ctx, entryOf(n), d.sign(t, entryOf(n)), Tag{})
			if err != nil || index != int64(n) {
				t.Fatalf("entry %d: index %d, %v", n, index, err)
			}
		}
	}
	head, err := client.TreeHead(ctx)
	if err != nil || head.TreeSize != 3 {
		t.Fatalf("%+v, %v", head, err)
	}
	if err := d.keys.Verify(head.Message(), head.Signature); err != nil {
		t.Error(err)
	}
	for _, index := range []int64{1, AnyIndex} {
		inclusion, err := client.Inclusion(ctx, entryOf(1), index)
		if err != nil || inclusion.TreeHead != head || inclusion.LeafIndex != 1 {
			t.Fatalf("%+v, %v", inclusion, err)
		}
		if err := inclusion.Verify(entryOf(1)); err != nil {
			t.Error(err)
		}
	}

	expect := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	_, err = client.Inclusion(ctx, entryOf(1), 2)
	expect("another entry's index", err, ErrNotFound)
	_, err = client.Inclusion(ctx, entryOf(9), 9)
	expect("an index past the log", err, ErrNotFound)
	_, err = client.Inclusion(ctx, entryOf(9), AnyIndex)
	expect("an entry that is not there", err, ErrNotFound)
	_, err = client.Append(ctx, entryOf(9), d.sign(t, entryOf(8)), Tag{})
	expect("a wrong signature", err, ErrRefused)

	// A client that is set up wrongly gets no verdict.
	_, err = NewClient(appendURL, readURL, "another secret").Append(ctx, entryOf(9), d.sign(t, entryOf(9)), Tag{})
	expect("a wrong secret", err, ErrUnavailable)
	swapped := NewClient(readURL, appendURL, secret)
	_, err = swapped.Append(ctx, entryOf(9), d.sign(t, entryOf(9)), Tag{})
	expect("append to the read port", err, ErrUnavailable)
	_, err = swapped.Inclusion(ctx, entryOf(1), 1)
	expect("read from the append port", err, ErrUnavailable)
	_, err = NewClient("http://127.0.0.1:1", "http://127.0.0.1:1", secret).TreeHead(ctx)
	expect("nobody listens", err, ErrUnavailable)
	_, err = NewClient(":", ":", secret).TreeHead(ctx)
	expect("no address", err, ErrUnavailable)
	gone, leave := context.WithCancel(ctx)
	leave()
	_, err = client.TreeHead(gone)
	expect("a caller that has left", err, ErrUnavailable)

	asOwner(t, d, flip("leaves", "entry", "leaf_index = 1"))
	_, err = client.Inclusion(ctx, entryOf(1), 1)
	expect("the tampered leaf", err, ErrInconsistent)
}

// Answers that are no log server's are never taken for a verdict.
func TestClientMisshapenAnswers(t *testing.T) {
	t.Parallel()
	entry := entryOf(0)
	hash := strings.Repeat("ab", 32)
	inclusion := `{"tree_size":%s,"root_hash":"%s","signature":"s","leaf_index":%s,"entry":"%x","inclusion_path":[%s]}`
	var answer atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text := answer.Load().(string)
		if status, rest, found := strings.Cut(text, "!"); found {
			var code int
			_, _ = fmt.Sscan(status, &code)
			w.WriteHeader(code)
			text = rest
		}
		_, _ = io.WriteString(w, text)
	}))
	defer server.Close()
	client := NewClient("", server.URL, "") // one proof a request

	answer.Store(fmt.Sprintf(inclusion, "2", hash, "0", entry, `"`+hash+`"`))
	if _, err := client.Inclusion(t.Context(), entry, 0); err != nil {
		t.Fatalf("a good answer: %v", err)
	}
	for _, bad := range []string{
		"", "<html>", "[]", "{}", "null",
		fmt.Sprintf(inclusion, "2", hash, "1", entry, ""),
		fmt.Sprintf(inclusion, "2", hash, "0", entryOf(1), ""),
		fmt.Sprintf(inclusion, "0", hash, "0", entry, ""),
		fmt.Sprintf(inclusion, "1.5", hash, "0", entry, ""),
		fmt.Sprintf(inclusion, "9007199254740992", hash, "0", entry, ""),
		fmt.Sprintf(inclusion, "2", hash[2:], "0", entry, ""),
		fmt.Sprintf(inclusion, "2", strings.ToUpper(hash), "0", entry, ""),
		fmt.Sprintf(inclusion, "2", hash, "0", entry, `"x"`),
		fmt.Sprintf(inclusion, "2", hash, "0", entry, `5`),
		"404!<html>", `404!{"error":"NOT_FOUND: no"}`, `404!{"error":"DEAL_NOT_FOUND: no"}`,
		"500!", `401!{"error":"INVALID_CREDENTIAL: no"}`, `503!{"error":"UNAVAILABLE: no"}`, "302!",
	} {
		answer.Store(bad)
		if _, err := client.Inclusion(t.Context(), entry, 0); !errors.Is(err, ErrUnavailable) {
			t.Errorf("inclusion, answer %s: %v", bad, err)
		}
		if _, err := client.TreeHead(t.Context()); !errors.Is(err, ErrUnavailable) && !strings.HasPrefix(bad, `{"tree_size":2,"root_hash":"`+hash) && !strings.HasPrefix(bad, `{"tree_size":0`) {
			t.Errorf("tree head, answer %s: %v", bad, err)
		}
		if _, err := client.Append(t.Context(), entry, "s", Tag{}); !errors.Is(err, ErrUnavailable) && !strings.HasPrefix(bad, `{"tree_size"`) {
			t.Errorf("append, answer %s: %v", bad, err)
		}
	}
	for _, bad := range []string{`{"leaf_index":1,"tree_size":1}`, `{"leaf_index":-1,"tree_size":1}`, `{"leaf_index":0}`, `{"tree_size":1}`} {
		answer.Store(bad)
		if _, err := client.Append(t.Context(), entry, "s", Tag{}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("append, answer %s: %v", bad, err)
		}
	}
}

func TestAppendPort(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	_, url, _ := ports(t, l)
	good := fmt.Sprintf(`{"entry":"%x","signature":%q,"more":1}`, entryOf(0), d.sign(t, entryOf(0)))
	bearer := "Bearer " + secret
	for _, c := range []struct {
		what, method, path, authorization, body string
		status                                  int
		answer                                  string
	}{
		{"no secret", "POST", "/v1/append", "", good, 401, `{"error":"AUTH_REQUIRED: `},
		{"another scheme", "POST", "/v1/append", "Basic " + secret, good, 401, `{"error":"AUTH_REQUIRED: `},
		{"a wrong secret", "POST", "/v1/append", "Bearer " + secret + "r", good, 401, `{"error":"INVALID_CREDENTIAL: `},
		{"a wrong secret before a bad body", "POST", "/v1/append", "Bearer x", "{", 401, `{"error":"INVALID_CREDENTIAL: `},
		{"no JSON", "POST", "/v1/append", bearer, "{", 400, `{"error":"INVALID_JSON: `},
		{"a list", "POST", "/v1/append", bearer, "[]", 400, `{"error":"INVALID_JSON: `},
		{"two values", "POST", "/v1/append", bearer, good + good, 400, `{"error":"INVALID_JSON: `},
		{"no entry", "POST", "/v1/append", bearer, "{}", 400, `{"error":"INVALID_REQUEST: entry`},
		{"a short entry", "POST", "/v1/append", bearer, `{"entry":"ab","signature":"s"}`, 400, `{"error":"INVALID_REQUEST: entry`},
		{"no signature", "POST", "/v1/append", bearer, fmt.Sprintf(`{"entry":"%x"}`, entryOf(0)), 400, `{"error":"INVALID_REQUEST: signature`},
		{"a bad signature", "POST", "/v1/append", bearer, fmt.Sprintf(`{"entry":"%x","signature":"s"}`, entryOf(0)), 403, `{"error":"FORBIDDEN: `},
		{"a large body", "POST", "/v1/append", bearer, good + strings.Repeat(" ", 5000), 413, `{"error":"BODY_TOO_LARGE: `},
		{"GET", "GET", "/v1/append", bearer, "", 405, `{"error":"METHOD_NOT_ALLOWED: `},
		{"a read path", "GET", "/v1/log/tree-head", bearer, "", 404, `{"error":"NOT_FOUND: `},
		{"OPTIONS", "OPTIONS", "/v1/append", "", "", 204, ``},
		{"good", "POST", "/v1/append", bearer, good, 200, `{"leaf_index":0,"tree_size":1}`},
		{"good, another case of Bearer", "POST", "/v1/append", "bearer " + secret, good, 200, `{"leaf_index":0,"tree_size":1}`},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, url+c.path, strings.NewReader(c.body))
		check(t, err)
		if c.authorization != "" {
			request.Header.Set("Authorization", c.authorization)
		}
		response, err := http.DefaultClient.Do(request)
		check(t, err)
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != c.status || !strings.HasPrefix(string(body), c.answer) {
			t.Errorf("%s: %d %s, want %d %s", c.what, response.StatusCode, body, c.status, c.answer)
		}
		if strings.Contains(string(body), secret) || response.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: the secret or a CORS header is in the answer", c.what)
		}
	}
}
