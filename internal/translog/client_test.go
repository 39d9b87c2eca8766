package translog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const secret = "correct horse battery staple"

func ports(t *testing.T, l *Log) (client *Client, appendURL, readURL string) {
	t.Helper()
	a, r := httptest.NewServer(l.AppendHandler(func() []string { return []string{secret} })), httptest.NewServer(l.ReadHandler())
	t.Cleanup(a.Close)
	t.Cleanup(r.Close)
	return NewClient(a.URL+"/", r.URL, secret), a.URL, r.URL
}

func TestClientErrorsSayWhatTheLogDecided(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	client, appendURL, readURL := ports(t, l)
	ctx := within(t, time.Minute)
	for n := range 3 {
		for range 2 {
			index, err := client.Append(ctx, entryOf(n), d.sign(t, entryOf(n)), Tag(entryOf(n)))
			if err != nil || index != int64(n) {
				t.Fatalf("append entry %d: index %d, %v; want its number as index", n, index, err)
			}
		}
	}
	head, err := client.TreeHead(ctx)
	if err != nil || head.TreeSize != 3 {
		t.Fatalf("newest head %+v, %v; want size 3", head, err)
	}
	if _, err := d.keys.SignerOf(head.Message(), head.Signature); err != nil {
		t.Errorf("the signature of the head does not verify: %v", err)
	}
	inclusion, err := client.Inclusion(ctx, entryOf(1), 1)
	if err != nil || inclusion.TreeHead != head || inclusion.LeafIndex != 1 {
		t.Fatalf("proof of leaf 1: %+v, %v; want it under the newest head", inclusion, err)
	}
	check(t, verify(inclusion, entryOf(1)))

	tag := Tag(entryOf(1000))
	check(t, isAt(3)(client.Append(ctx, entryOf(3), d.sign(t, entryOf(3)), tag)))
	gone, leave := context.WithCancel(ctx)
	leave()
	append9 := func(c *Client, tag Tag) error { return second(c.Append(ctx, entryOf(9), d.sign(t, entryOf(9)), tag)) }
	swapped := NewClient(readURL, appendURL, secret)
	for what, c := range map[string]struct{ err, want error }{
		"another entry's index":      {second(client.Inclusion(ctx, entryOf(1), 2)), ErrNotFound},
		"an index past the log":      {second(client.Inclusion(ctx, entryOf(9), 9)), ErrNotFound},
		"a wrong signature":          {second(client.Append(ctx, entryOf(9), d.sign(t, entryOf(8)), Tag(entryOf(9)))), ErrRefused},
		"another entry with the tag": {append9(client, tag), ErrTagTaken},
		"a wrong secret":             {append9(NewClient(appendURL, readURL, "another secret"), Tag{9}), ErrUnavailable},
		"append to the read port":    {append9(swapped, Tag{9}), ErrUnavailable},
		"read from the append port":  {second(swapped.Inclusion(ctx, entryOf(1), 1)), ErrUnavailable},
		"no server at the address":   {second(NewClient("", "http://127.0.0.1:1", "").TreeHead(ctx)), ErrUnavailable},
		"no address":                 {second(NewClient(":", ":", secret).TreeHead(ctx)), ErrUnavailable},
		"a caller that has left":     {second(client.TreeHead(gone)), ErrUnavailable},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", what, c.err, c.want)
		}
	}
	if err := append9(client, tag); !strings.Contains(fmt.Sprint(err), "leaf 3:") {
		t.Errorf("the error does not name the leaf: %v", err)
	}

	asOwner(t, d, flip("leaves", "entry", "leaf_index = 1"))
	if _, err := client.Inclusion(ctx, entryOf(1), 1); !errors.Is(err, ErrInconsistent) {
		t.Errorf("the tampered leaf: %v, want ErrInconsistent", err)
	}
}

func TestMalformedAnswersAreNoVerdict(t *testing.T) {
	t.Parallel()
	entry := entryOf(0)
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
	client := NewClient(server.URL, server.URL, secret)

	answer.Store(`[{"tree_size":2,"signature":"s","leaf_index":0}]`)
	if _, err := client.Inclusion(t.Context(), entry, 0); err != nil {
		t.Fatalf("inclusion with a good answer: %v, want no error", err)
	}
	for _, bad := range []string{
		"", "<html>", "[]", "{}", "null", "[{}]", "[null]", `[{"error":"what"}]`, `[{"tree_size":1.5}]`, `[{"inclusion_path":[5]}]`, `{"tree_size":1}`,
		"404!<html>", `404!{"error":"NOT_FOUND: no"}`, `404!{"error":"DEAL_NOT_FOUND: no"}`,
		"500!", `401!{"error":"INVALID_CREDENTIAL: no"}`, `503!{"error":"UNAVAILABLE: no"}`, "302!",
	} {
		answer.Store(bad)
		if _, err := client.Inclusion(t.Context(), entry, 0); !errors.Is(err, ErrUnavailable) {
			t.Errorf("inclusion, answer %s: %v, want ErrUnavailable", bad, err)
		}
		if _, err := client.TreeHead(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("tree head, answer %s: %v, want ErrUnavailable", bad, err)
		}
		if _, err := client.Append(t.Context(), entry, "s", Tag(entry)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("append, answer %s: %v, want ErrUnavailable", bad, err)
		}
	}
	for _, bad := range []string{`{"leaf_index":1,"tree_size":1}`, `{"leaf_index":-1,"tree_size":1}`, `{"leaf_index":0}`, `{"tree_size":1}`} {
		answer.Store(bad)
		if _, err := client.Append(t.Context(), entry, "s", Tag(entry)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("append, answer %s: %v, want ErrUnavailable", bad, err)
		}
	}
}

func TestAppendPortAnswers(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	_, url, _ := ports(t, l)
	tagged := func(tag string) string {
		return fmt.Sprintf(`{"entry":"%x","signature":%q,"tag":%q,"more":1}`, entryOf(0), d.sign(t, entryOf(0)), tag)
	}
	good := tagged(strings.Repeat("ab", 32))
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
		{"no tag", "POST", "/v1/append", bearer, fmt.Sprintf(`{"entry":"%x","signature":"s"}`, entryOf(0)), 400, `{"error":"INVALID_REQUEST: tag`},
		{"a bad signature", "POST", "/v1/append", bearer, fmt.Sprintf(`{"entry":"%x","signature":"s","tag":"%[1]x"}`, entryOf(0)), 403, `{"error":"FORBIDDEN: `},
		{"a short tag", "POST", "/v1/append", bearer, tagged("00"), 400, `{"error":"INVALID_REQUEST: tag`},
		{"a tag in upper case", "POST", "/v1/append", bearer, tagged(strings.Repeat("A", 64)), 400, `{"error":"INVALID_REQUEST: tag`},
		{"a large body", "POST", "/v1/append", bearer, good + strings.Repeat(" ", 5000), 413, `{"error":"BODY_TOO_LARGE: `},
		{"GET", "GET", "/v1/append", bearer, "", 405, `{"error":"METHOD_NOT_ALLOWED: `},
		{"a read path", "GET", "/v1/log/tree-head", bearer, "", 404, `{"error":"NOT_FOUND: `},
		{"OPTIONS", "OPTIONS", "/v1/append", "", "", 204, ``},
		{"good", "POST", "/v1/append", bearer, good, 200, `{"leaf_index":0,"tree_size":1}`},
		{"the entry under another tag", "POST", "/v1/append", bearer, tagged(strings.Repeat("cd", 32)), 403, `{"error":"FORBIDDEN: `},
		{"good, another case of Bearer", "POST", "/v1/append", "bearer " + secret, good, 200, `{"leaf_index":0,"tree_size":1}`},
	} {
		request := of(http.NewRequestWithContext(t.Context(), c.method, url+c.path, strings.NewReader(c.body))).ok(t)
		if c.authorization != "" {
			request.Header.Set("Authorization", c.authorization)
		}
		response := of(http.DefaultClient.Do(request)).ok(t)
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != c.status || !strings.HasPrefix(string(body), c.answer) {
			t.Errorf("%s: %d %s, want %d %s", c.what, response.StatusCode, body, c.status, c.answer)
		}
		if strings.Contains(string(body), secret) || response.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: the answer has the secret or a CORS header, want neither", c.what)
		}
	}
}

// HTTP_PROXY is for external calls. The proxy must not see the append secret. A process
// reads the variable once, so the client runs in a child process. Go never uses a proxy
// for loopback addresses, but uses one for 0.0.0.0, so the client calls 0.0.0.0.
func TestTheAppendSecretGoesToNoProxy(t *testing.T) {
	const inner = "FAIRPACT_TEST_BEHIND_A_PROXY"
	if os.Getenv(inner) != "" {
		client := NewClient("http://0.0.0.0:1", "http://0.0.0.0:1", secret)
		if _, err := client.Append(t.Context(), entryOf(0), "es256:AA", Tag(entryOf(0))); !errors.Is(err, ErrUnavailable) {
			t.Errorf("append to a closed port: %v, want ErrUnavailable", err)
		}
		if _, err := client.TreeHead(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("tree head from a closed port: %v, want ErrUnavailable", err)
		}
		return
	}
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the proxy got %s %s with Authorization %q, want no request", r.Method, r.URL, r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	program := of(os.Executable()).ok(t)
	child := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), inner+"=1", "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("the child process: %v, want success; it printed:\n%s", err, out)
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"http://log-append:8091": true, "http://log-append:8091/": true, "https://log.test": true, "http://[::1]:8090": true, "http://10.0.0.1:8090/log": true,
		"": false, "http://": false, "http://log:port": false, "http://log:0": false, "http://log:65536": false, "http://log:": false, "http://:8091": false, "log-append:8091": false, "//log:8091": false,
		"ftp://log:8091": false, "HTTP://log:8091": true, "http://log:8091?a=b": false, "http://log:8091#a": false, "http://log 1:8091": false,
		"http://user:hunter2@log:8091": false, "http://user:hunter2@log:port": false, "http://hunter2@log": false, "user:hunter2@log": false,
	} {
		err := CheckURL(address)
		if (err == nil) != good {
			t.Errorf("CheckURL(%q): %v, want valid: %t", address, err, good)
		}
		if err == nil {
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "http://HOST:PORT") {
			t.Errorf("CheckURL(%q): %v, want the form http://HOST:PORT and no password", address, err)
		}
		if !strings.Contains(address, "@") && !strings.Contains(err.Error(), `"`+address+`"`) {
			t.Errorf("CheckURL(%q) does not show the address: %v", address, err)
		}
	}
}

func TestClientAsksForProofsTogether(t *testing.T) {
	t.Parallel()
	const leaves, callers = 5, 200
	d, l := newLog(t)
	for i := range leaves {
		d.mustAppend(t, l, i)
	}
	var requests atomic.Int64
	port := l.AppendHandler(func() []string { return []string{secret} })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		port.ServeHTTP(w, r)
	}))
	defer server.Close()
	client := NewClient(server.URL, "", secret)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			in, err := client.Inclusion(t.Context(), entryOf(i%leaves), int64(i%leaves))
			if err == nil {
				err = verify(in, entryOf(i%leaves))
			}
			if err != nil {
				t.Errorf("prove leaf %d: %v, want a valid proof", i%leaves, err)
			}
		})
		all.Go(func() {
			if _, err := client.Inclusion(t.Context(), entryOf(i%leaves), leaves+1); !errors.Is(err, ErrNotFound) {
				t.Errorf("a leaf that the log does not have: %v, want ErrNotFound", err)
			}
		})
	}
	all.Wait()
	if n := requests.Load(); n == 0 || n > callers {
		t.Errorf("%d requests for %d calls, want 1 to %d", n, 2*callers, callers)
	}
}
