package httpclient

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// script starts a server and returns a client of the server. The server answers the i-th
// request with the i-th function, and all further requests with the last function. The
// returned pointers are to the lists of all requests and all pauses so far.
func script(t *testing.T, answers ...http.HandlerFunc) (*Client, *[]*http.Request, *[]time.Duration) {
	t.Helper()
	var seen []*http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r)
		answers[min(len(seen), len(answers))-1](w, r)
	}))
	t.Cleanup(server.Close)
	c, err := New(server.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	var waits []time.Duration
	c.wait = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
	return c, &seen, &waits
}

func says(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
}

func TestOneKeyForAllAttempts(t *testing.T) {
	t.Parallel()
	c, seen, waits := script(t, hangUp, says(503, `{"error":"UNAVAILABLE: again"}`, "Retry-After", "3"),
		says(409, `{"error":"IDEMPOTENCY_IN_PROGRESS: wait"}`), says(502, "<html>"), says(502, `{"error":"upstream: refused"}`), says(201, `{"ok":true}`))
	answer, err := c.Post(t.Context(), "/v1/deals", "fp_secret", map[string]string{"a": "<&>"})
	if err != nil || string(answer) != `{"ok":true}` {
		t.Fatalf("Post after five faults: got %s (error %v), want {\"ok\":true}", answer, err)
	}
	keys := map[string]bool{}
	for _, r := range *seen {
		keys[r.Header.Get("Idempotency-Key")] = true
		if r.Header.Get("Authorization") != "Bearer fp_secret" {
			t.Errorf("an attempt has Authorization %q, want Bearer fp_secret", r.Header.Get("Authorization"))
		}
	}
	if len(*seen) != 6 || len(keys) != 1 || keys[""] {
		t.Errorf("%d attempts with the Idempotency-Keys %v, want 6 with one key", len(*seen), keys)
	}
	if want := []time.Duration{200 * time.Millisecond, 3 * time.Second, 800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond}; !slices.Equal(*waits, want) {
		t.Errorf("the pauses between attempts are %v, want %v", *waits, want)
	}
	if _, err := c.Post(t.Context(), "/v1/deals", "", nil); err != nil {
		t.Fatal(err)
	}
	if keys[(*seen)[6].Header.Get("Idempotency-Key")] {
		t.Error("the second call has the Idempotency-Key of the first")
	}
}

func TestRefusalsAreFinal(t *testing.T) {
	t.Parallel()
	for status, message := range map[int]string{
		400: "INVALID_INPUT: correct it", 401: "AUTH_REQUIRED: send one", 403: "FORBIDDEN: not yours",
		404: "DEAL_NOT_FOUND: none", 409: "ALREADY_COMMITTED: wait", 502: "BEACON_UNAVAILABLE: later",
	} {
		c, seen, _ := script(t, says(status, `{"error":"`+message+`"}`))
		_, err := c.Post(t.Context(), "/v1/x", "", nil)
		refused, ok := errors.AsType[*StatusError](err)
		if !ok || refused.Message != message || refused.Status != status || len(*seen) != 1 {
			t.Errorf("status %d: got %v after %d attempts, want %q after 1", status, err, len(*seen), message)
		}
	}
}

func TestItGivesUp(t *testing.T) {
	t.Parallel()
	c, seen, _ := script(t, says(503, `{"error":"UNAVAILABLE: again"}`))
	if _, err := c.Get(t.Context(), "/v1/status", ""); err == nil || len(*seen) != attempts {
		t.Errorf("a service that always answers 503: error %v after %d attempts, want an error after %d", err, len(*seen), attempts)
	}
	if (*seen)[0].Header.Get("Idempotency-Key") != "" {
		t.Errorf("a GET has the Idempotency-Key %q, want none", (*seen)[0].Header.Get("Idempotency-Key"))
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	nobody, err := New("http://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nobody.wait = func(context.Context, time.Duration) error { return nil }
	if _, err := nobody.Get(t.Context(), "/v1/status", "it_secret"); !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a closed port: got %v, want ErrUnreachable without the token", err)
	}
}

func TestItStopsWithItsContext(t *testing.T) {
	t.Parallel()
	c, seen, _ := script(t, says(503, ""))
	ctx, cancel := context.WithCancel(t.Context())
	c.wait = func(ctx context.Context, d time.Duration) error { cancel(); return Pause(ctx, time.Hour) }
	if _, err := c.Get(ctx, "/", ""); !errors.Is(err, context.Canceled) || len(*seen) != 1 {
		t.Errorf("a context that ends in the pause: got %v after %d attempts, want context.Canceled after 1", err, len(*seen))
	}
}

func TestNoRedirectTakesTheCredentialElsewhere(t *testing.T) {
	t.Parallel()
	c, seen, _ := script(t, says(302, "", "Location", "/elsewhere"), says(200, "{}"))
	if _, err := c.Get(t.Context(), "/v1/deals/d", "it_secret"); err == nil || len(*seen) != 1 {
		t.Errorf("a redirect: got error %v after %d requests, want an error after 1", err, len(*seen))
	}
}

func TestBaseURLs(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "fairpact.example", "ftp://x", "http://", "https://u:p@x", "https://x?a=b", "http://x#f", ":"} {
		if _, err := New(bad); err == nil {
			t.Errorf("New(%q) returns no error", bad)
		} else if strings.Contains(err.Error(), "u:p") {
			t.Errorf("the error of New(%q) shows the password: %v", bad, err)
		}
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	c, seen, _ := script(t, says(200, `{"a":1}`, "ETag", `"one"`), says(503, `{"error":"UNAVAILABLE: again"}`), says(200, `{"a":2}`, "ETag", `"two"`))
	body, tag, err := c.Follow(t.Context(), "/v1/deals/d", "it_x", "", 45*time.Second)
	if err != nil || string(body) != `{"a":1}` || tag != `"one"` {
		t.Fatalf("Follow without a tag: got %s with tag %s (error %v), want {\"a\":1} with \"one\"", body, tag, err)
	}
	body, tag, err = c.Follow(t.Context(), "/v1/deals/d", "it_x", tag, 45*time.Second)
	if err != nil || string(body) != `{"a":2}` || tag != `"two"` {
		t.Fatalf("Follow with the tag \"one\": got %s with tag %s (error %v), want {\"a\":2} with \"two\"", body, tag, err)
	}
	for i, want := range []string{"", "since=%22one%22&wait=45", "since=%22one%22&wait=45"} {
		if got := (*seen)[i].URL.RawQuery; got != want {
			t.Errorf("request %d has the query %q, want %q", i, got, want)
		}
	}
}
