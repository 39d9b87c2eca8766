package abuse

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

const hour = time.Hour

// After each attack, deal-api still serves deals, and its memory has stayed below mostMemory.
func TestAttacks(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, nil)
	for _, attack := range []struct {
		name string
		test func(*testing.T, *localstack.Stack)
	}{
		{"large tool calls", largeToolCalls},
		{"half-sent bodies", halfSentBodies},
		{"a large certificate", largeCertificate},
		{"many connections", manyConnections},
	} {
		t.Run(attack.name, func(t *testing.T) {
			attack.test(t, stack)
			survived(t, stack)
		})
	}
}

// largeToolCalls sends large MCP messages without a valid credential. The responses must be small.
func largeToolCalls(t *testing.T, stack *localstack.Stack) {
	c := e2e.NewClient(t, stack.BaseURL())
	for name, row := range map[string]struct {
		message string
		status  int // 503 is also allowed, if the service is busy
	}{
		"an input with a short salt": {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"compute_commitment_tool","arguments":{"salt":"a","input":{"x":["` +
			strings.Repeat("0123456789", 90_000) + `"]}}}}`, 200},
		"an input over the limit": {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"compute_commitment_tool","arguments":{"salt":"a","input":{"x":"` +
			strings.Repeat("0", 3_840_000) + `"}}}}`, 413},
		"a ping full of _meta":       {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"x":[` + strings.Repeat(`{"a":[]},`, 400_000) + `0]}}}`, 413},
		"a deal with an unknown key": {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"create_deal","arguments":{"api_key":"fp_x","party_labels":["` + strings.Repeat(`a","`, 120_000) + `b"]}}}`, 200},
	} {
		t.Run(name, func(t *testing.T) {
			var all sync.WaitGroup
			var expected atomic.Int64
			for range 16 {
				all.Go(func() {
					answer, err := http.Post(c.Base+"/mcp", "application/json", strings.NewReader(row.message))
					if err != nil {
						t.Errorf("POST /mcp: %v, want an answer", err)
						return
					}
					body, err := io.ReadAll(answer.Body)
					answer.Body.Close()
					if answer.StatusCode == row.status {
						expected.Add(1)
					}
					if err != nil || answer.StatusCode != row.status && answer.StatusCode != http.StatusServiceUnavailable {
						t.Errorf("got %d (%v) %.200s, want %d or 503", answer.StatusCode, err, body, row.status)
					}
					if len(body) > 16<<10 {
						t.Errorf("the response has %d bytes, want at most %d", len(body), 16<<10)
					}
				})
			}
			all.Wait()
			if expected.Load() == 0 {
				t.Errorf("none of 16 calls was answered with %d", row.status)
			}
		})
	}
}

// deal-api must close connections that send half of a large body and then nothing more.
func halfSentBodies(t *testing.T, stack *localstack.Stack) {
	address := strings.TrimPrefix(stack.BaseURL(), "http://")
	half := strings.Repeat(" ", 2<<20)
	var all sync.WaitGroup
	ended := make(chan error, 400)
	for range 400 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all.Go(func() {
			_, _ = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n%s", half)
			_ = conn.SetReadDeadline(time.Now().Add(e2e.DefaultTimeout))
			_, err := io.ReadAll(conn)
			ended <- err
		})
	}
	survived(t, stack)
	all.Wait()
	close(ended)
	for err := range ended {
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			t.Fatal("a connection that stopped in the middle of a body stays open")
		}
	}
}

// Each API key has a limit for the total cost of the deals that it creates in a minute, with and
// without Redis, and a limit for the total cost of its open deals. A deal that has ended no longer counts.
func TestBudgetsOfDeals(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Env[localstack.DealAPI] = []string{"FAIRPACT_DEAL_UNITS_PER_MINUTE=20"} })
	c := e2e.NewClient(t, stack.BaseURL())
	greedy, frugal := c.Key(), c.Key()
	round := stack.Chain().RoundAt(time.Now().Add(3*hour).Unix()) + 1
	large := e2e.RandomBody(500, round, hour, 2*hour)
	spent := func() {
		t.Helper()
		made := 0
		for ; made < 8; made++ {
			a := c.Do("POST", "/v1/deals", greedy, large)
			if a.Status == 429 {
				if a.Code() != "RATE_LIMITED" || a.Header.Get("Retry-After") == "" {
					t.Errorf("429 %s with header %v, want RATE_LIMITED and Retry-After", a.Body, a.Header)
				}
				break
			}
			if a.Status != 201 {
				t.Fatalf("create a deal: %d %s, want 201 or 429", a.Status, a.Body)
			}
		}
		if made == 8 {
			t.Error("8 deals of 6 units each were created, want a refusal after 20 units")
		}
		d := c.CreateWith(frugal, e2e.SplitBody(hour, 2*hour))
		d.Play(e2e.AnnsValues, e2e.BobsValues)
	}
	spent()
	// deal-api logs one warning a minute, however many calls it refuses.
	whole := e2e.RandomBody(1900, round, hour, 2*hour) // 20 units, which take a minute to come back
	for range 20 {
		c.Refused(429, "RATE_LIMITED", "POST", "/v1/deals", greedy, whole)
	}
	text, err := os.ReadFile(stack.Log("deal-api"))
	e2e.Must(t, err)
	if n := strings.Count(string(text), `"msg":"requests fail"`); n < 1 || n > 2 {
		t.Errorf("%d warnings for 21 refusals, want 1 or 2", n)
	}
	e2e.Must(t, stack.Redis().Stop())
	greedy = c.Key()
	spent()

	e2e.Must(t, stack.Redis().Restart(t.Context()))
	e2e.Must(t, stack.Restart(t.Context(), "deal-api", "FAIRPACT_DEAL_UNITS_PER_MINUTE=0", "FAIRPACT_OPEN_DEAL_UNITS=20"))
	key := c.Key()
	body := e2e.SplitBody(hour, 2*hour)
	first := c.CreateWith(key, body)
	for range 19 {
		c.CreateWith(key, body)
	}
	if a := c.Refused(429, "RATE_LIMITED", "POST", "/v1/deals", key, body); a.Header.Get("Retry-After") == "" {
		t.Errorf("%s with header %v, want a Retry-After", a.Body, a.Header)
	}
	c.Create(body) // uses a new API key, so the limit of the other key does not apply
	c.Want(200, "POST", first.Path("/cancel"), key, nil)
	e2e.Eventually(t, "a cancelled deal frees its share", e2e.DefaultTimeout, func() bool {
		return c.Do("POST", "/v1/deals", key, body).Status == 201
	})
	c.Refused(429, "RATE_LIMITED", "POST", "/v1/deals", key, body)
}

// largeCertificate reads a deal with 10,000 parties, the maximum, from 16 goroutines at once. deal-api
// may refuse some reads with 503, but must answer others.
func largeCertificate(t *testing.T, stack *localstack.Stack) {
	c := e2e.NewClient(t, stack.BaseURL())
	labels := make([]string, 10_000)
	for i := range labels {
		labels[i] = fmt.Sprintf("%05d%s", i, strings.Repeat("x", 45))
	}
	round := stack.Chain().RoundAt(time.Now().Add(3*hour).Unix()) + 1
	body := e2e.RandomBody(2, round, 3*time.Second, hour)
	body["party_labels"] = labels
	d := c.Create(body)
	d.Certified(e2e.DefaultTimeout) // the deal becomes VOID, because no party commits
	for _, path := range []string{"/v1/verify/" + *d.View().CertificateID, d.Path("/certificate"), d.Path("")} {
		var answered atomic.Int64
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for range 5 {
					a, err := c.Try(t.Context(), "GET", path, d.Tokens[1], nil, "Accept-Encoding", "identity")
					if err != nil || a.Status != 200 && a.Status != 503 {
						t.Errorf("GET %s: %d (%v), want 200 or 503", path, a.Status, err)
						return
					}
					if a.Status == 200 {
						answered.Add(1)
					}
				}
			})
		}
		c.Create(e2e.SplitBody(hour, 2*hour)) // deal-api serves other calls during the reads
		all.Wait()
		if answered.Load() == 0 {
			t.Errorf("GET %s: every call was refused with 503", path)
		}
	}
}
