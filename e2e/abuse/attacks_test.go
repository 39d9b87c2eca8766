package abuse

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// many sends n requests, 64 at once, and requires success.
func many(t *testing.T, c *e2e.Client, n int, request func(i int) (method, path, token string, body any)) {
	t.Helper()
	var next atomic.Int64
	var failed atomic.Pointer[string]
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				method, path, token, body := request(i)
				a, err := c.Try(t.Context(), method, path, token, body)
				if err != nil || a.Status >= 300 {
					failed.Store(new(fmt.Sprintf("%s %s: %d %.200s (%v)", method, path, a.Status, a.Body, err)))
				}
			}
		})
	}
	all.Wait()
	if text := failed.Load(); text != nil {
		t.Fatal(*text)
	}
}

// flood repeats a request on n connections until the context ends. header is name, value, and so on.
func flood(n int, request func(i int) (method, path, token string, body any), header ...string) func(context.Context, *crowd) {
	return func(ctx context.Context, from *crowd) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				for ctx.Err() == nil {
					method, path, token, body := request(i)
					_, _ = from.clients[i%len(from.clients)].Try(ctx, method, path, token, body, header...)
				}
			})
		}
		all.Wait()
	}
}

// tool returns the message that calls a tool of /mcp.
func tool(name string, arguments any) string {
	text, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": name, "arguments": arguments}})
	return string(text)
}

// deep is a text of about 65,000 bytes whose parsed form takes 51 times as much.
func deep(begin, end string) string {
	return begin + strings.Repeat(`{"":0},`, 9270) + "0" + end
}

func deepDocuments(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
	body := deep(`{"certificate":{"a":1,"x":[`, `]}}`)
	return flood(300, func(int) (string, string, string, any) { return "POST", "/v1/verify", "", body })
}

func deepCommits(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
	d := e2e.NewClient(t, stack.BaseURL()).Create(e2e.SplitBody(hour, 2*hour))
	body := deep(`{"commitment":"sha256:`+strings.Repeat("0", 64)+`","x":[`, `]}`)
	return flood(300, func(int) (string, string, string, any) {
		return "POST", d.Path("/commit"), d.Tokens[0], body
	})
}

func largeBody(stack *localstack.Stack, commitIn time.Duration) e2e.Body {
	labels := make([]string, 10_000)
	for i := range labels {
		labels[i] = fmt.Sprintf("%05d%s", i, strings.Repeat("x", 45))
	}
	body := e2e.RandomBody(2, stack.Chain().RoundAt(time.Now().Add(3*hour).Unix())+1, commitIn, hour)
	body["party_labels"] = labels
	return body
}

// largeDeals creates deals with 10,000 parties that become VOID.
func largeDeals(t *testing.T, stack *localstack.Stack, n int) (all []*e2e.CreatedDeal) {
	c := e2e.NewClient(t, stack.BaseURL())
	for range n {
		all = append(all, c.Create(largeBody(stack, 10*time.Second)))
	}
	for _, d := range all {
		d.Certified(e2e.DefaultTimeout)
	}
	return all
}

func headCertificates(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
	var paths []string
	for _, d := range largeDeals(t, stack, 32) {
		paths = append(paths, "/v1/verify/"+*d.View().CertificateID)
	}
	return flood(1000, func(i int) (string, string, string, any) {
		return []string{"GET", "HEAD"}[i%2], paths[i%len(paths)], "", nil
	})
}

func headInputs(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
	const parties = 5000 // of 3,900 bytes each
	c := e2e.NewClient(t, stack.BaseURL())
	body := e2e.RandomBody(parties, stack.Chain().RoundAt(time.Now().Unix()-60), hour, 2*hour)
	d := c.Create(e2e.Retained(body, "open", "standard"))
	sealed := e2e.Seal(t, e2e.Body{"nonce": "aa", "x": strings.Repeat("x", 3900)})
	for _, action := range []string{"commit", "reveal"} {
		many(t, c, parties, func(i int) (string, string, string, any) {
			return "POST", d.Path("/" + action), d.Tokens[i], sealed.Act(action)
		})
	}
	c.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
	return flood(150, func(int) (string, string, string, any) { return "HEAD", d.Path("/inputs"), d.Tokens[0], nil })
}

func headDeal(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
	c := e2e.NewClient(t, stack.BaseURL())
	d := c.Create(largeBody(stack, hour/2))
	sealed := e2e.Seal(t, e2e.Body{"nonce": "aa"})
	many(t, c, 9980, func(i int) (string, string, string, any) {
		return "POST", d.Path("/commit"), d.Tokens[i], sealed.Act("commit")
	})
	return flood(64, func(int) (string, string, string, any) { return "HEAD", d.Path(""), d.Tokens[0], nil })
}

// stalled sends all of a body but a few bytes, on connections that fill the pool in ever smaller parts.
func stalled(t *testing.T, stack *localstack.Stack, party bool) func(context.Context, *crowd) {
	path, header := "/mcp", ""
	if party {
		d := e2e.NewClient(t, stack.BaseURL()).Create(e2e.SplitBody(hour, 2*hour))
		path, header = d.Path("/commit"), "Authorization: Bearer "+d.Tokens[0]+"\r\n"
	}
	return func(ctx context.Context, from *crowd) {
		var all sync.WaitGroup
		for _, part := range []struct{ connections, bytes int }{{1040, 65_500}, {400, 2000}, {300, 280}, {500, 90}} {
			text := strings.Repeat(" ", part.bytes)
			for i := range part.connections {
				all.Go(func() {
					for ctx.Err() == nil {
						from.hold(ctx, i, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s", path, header, part.bytes+20, text))
					}
				})
			}
			e2e.Pause(ctx, 300*time.Millisecond)
		}
		all.Wait()
	}
}

func replays(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
	d := largeDeals(t, stack, 1)[0]
	body := `{"certificate":` + string(d.Certified(e2e.DefaultTimeout)) + `}`
	return flood(8, func(int) (string, string, string, any) { return "POST", "/v1/verify", "", body })
}

// unread sends many requests on each connection, and reads no answer.
func unread(base func(*localstack.Stack) string, connections, requests int, path string) func(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
	return func(_ *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		text := strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n", requests)
		return func(ctx context.Context, from *crowd) {
			for i := range connections {
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from.addresses[i%len(from.addresses)])}}
				if conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(base(stack), "http://")); err == nil {
					defer conn.Close()
					_, _ = io.WriteString(conn, text)
				}
			}
			<-ctx.Done()
		}
	}
}

func silent(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
	return func(ctx context.Context, from *crowd) {
		var all sync.WaitGroup
		for i := range 9000 {
			if i%40 == 0 {
				e2e.Pause(ctx, 10*time.Millisecond)
			}
			if ctx.Err() != nil {
				break
			}
			all.Go(func() { from.hold(ctx, i, "") })
		}
		all.Wait()
	}
}

func unknown(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
	var n atomic.Int64
	return flood(500, func(int) (string, string, string, any) {
		return "GET", "/v1/deals/d_0000000000000000000000", fmt.Sprintf("fp_%043d", n.Add(1)), nil
	})
}

// held keeps n connections, each with a text sent.
func held(n int, text string) func(context.Context, *crowd) {
	return func(ctx context.Context, from *crowd) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				for ctx.Err() == nil {
					from.hold(ctx, i, text)
					e2e.Pause(ctx, 20*time.Millisecond)
				}
			})
		}
		all.Wait()
	}
}

// shortLines sends half of a header, of 5,000 lines.
func shortLines(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
	return held(1200, "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n"+strings.Repeat("a:\n", 5000))
}

// missingBody announces a body that does not come.
func missingBody(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
	d := e2e.NewClient(t, stack.BaseURL()).Create(e2e.SplitBody(hour, 2*hour))
	return held(4000, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 10\r\n\r\n", d.Path(""), d.Tokens[0]))
}

// largeReplays repeats a small request whose stored answer has about 3 MB, and reads no answer.
func largeReplays(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
	const parties, items = 16, 256
	c, body := e2e.NewClient(t, stack.BaseURL()), e2e.SplitBody(hour, 2*hour)
	names, labels := make([]string, items), make([]string, parties)
	for i := range names {
		names[i] = fmt.Sprintf("%04d%s", i, strings.Repeat(`"`, 196))
	}
	for i := range labels {
		labels[i] = fmt.Sprint("party ", i)
	}
	body["party_labels"], body["algorithm_params"] = labels, e2e.Body{"items": names}
	d, inputs := c.Create(body), make([]e2e.Sealed, parties)
	for p := range inputs {
		valuations := e2e.Body{}
		if p < parties-1 {
			for i, name := range names {
				valuations[name] = int64(9007199254740991 - 1_000_003*(i+1)*(p+7) - p*p*7919)
			}
		}
		inputs[p] = e2e.Seal(t, e2e.Body{"valuations": valuations})
		d.Commit(p, inputs[p])
	}
	for p := range parties - 1 {
		d.Reveal(p, inputs[p])
	}
	last := inputs[parties-1].Act("reveal")
	if a := c.Want(200, "POST", d.Path("/reveal"), d.Tokens[parties-1], last, "Idempotency-Key", "last"); len(a.Body) < 1<<20 {
		t.Fatalf("the last reveal is answered with %d bytes, want over a megabyte", len(a.Body))
	}
	text, err := json.Marshal(last)
	e2e.Must(t, err)
	request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nIdempotency-Key: last\r\nContent-Length: %d\r\n\r\n%s", d.Path("/reveal"), d.Tokens[parties-1], len(text), text)
	return func(ctx context.Context, from *crowd) {
		for i := range 400 {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from.addresses[i%len(from.addresses)])}}
			if conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(stack.BaseURL(), "http://")); err == nil {
				defer conn.Close()
				_ = conn.(*net.TCPConn).SetReadBuffer(4096)
				_, _ = io.WriteString(conn, request)
			}
		}
		<-ctx.Done()
	}
}
