package translog

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
)

// proofPorts serves a log of n leaves and counts the requests by path.
func proofPorts(t *testing.T, n int) (read, private *httptest.Server, requests map[string]*atomic.Int64) {
	t.Helper()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	for i := range n {
		d.mustAppend(t, l, i)
	}
	requests = map[string]*atomic.Int64{proofsPath: {}, "/v1/log/proof": {}}
	counted := func(h http.Handler) *httptest.Server {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c := requests[r.URL.Path]; c != nil {
				c.Add(1)
			}
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		return server
	}
	return counted(l.ReadHandler()), counted(l.AppendHandler(secret)), requests
}

func TestProofsOfManyCallersAreFewRequests(t *testing.T) {
	t.Parallel()
	const leaves, callers = 5, 200
	read, private, requests := proofPorts(t, leaves)
	client := NewClient(private.URL, read.URL, secret)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			in, err := client.Inclusion(t.Context(), entryOf(i%leaves), int64(i%leaves))
			if err == nil {
				err = in.Verify(entryOf(i % leaves))
			}
			if err != nil {
				t.Errorf("leaf %d: %v", i%leaves, err)
			}
		})
		all.Go(func() {
			if _, err := client.Inclusion(t.Context(), entryOf(i%leaves), leaves+1); !errors.Is(err, ErrNotFound) {
				t.Errorf("a leaf that is not there: %v", err)
			}
		})
	}
	all.Wait()
	if n := requests[proofsPath].Load(); n == 0 || n > callers {
		t.Errorf("%d requests for %d calls", n, 2*callers)
	}
}

// A log-server of an earlier release, and one with another append secret, prove
// one leaf a request.
func TestProofsFallBackToTheReadPort(t *testing.T) {
	t.Parallel()
	read, private, requests := proofPorts(t, 1)
	for what, client := range map[string]*Client{
		"an earlier release": NewClient(read.URL, read.URL, secret),
		"another secret":     NewClient(private.URL, read.URL, "another secret of the deployment"),
		"no append port":     NewClient("", read.URL, ""),
	} {
		before := requests["/v1/log/proof"].Load()
		if _, err := client.Inclusion(t.Context(), entryOf(0), 0); err != nil || requests["/v1/log/proof"].Load() != before+1 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestProofsOfMisshapenAnswersAreNoVerdict(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "[]", "[{}]", "[null]", "{}", `[{"error":"what"}]`, `[{"leaf_index":0}]`} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
		_, err := NewClient(server.URL, server.URL, secret).Inclusion(t.Context(), entryOf(0), 0)
		server.Close()
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%q: %v, want ErrUnavailable", text, fmt.Sprint(err))
		}
	}
}
