//go:build long

package abuse

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func get(n int, paths ...string) func(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
	return func(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
		return flood(n, func(i int) (string, string, string, any) { return "GET", paths[i%len(paths)], "", nil })
	}
}

// a large open deal, whose parties have all committed but `missing`.
func committedLarge(t *testing.T, stack *localstack.Stack, missing int) *e2e.CreatedDeal {
	c := e2e.NewClient(t, stack.BaseURL())
	d := c.Create(largeBody(stack, hour/2))
	sealed := e2e.Seal(t, e2e.Body{"nonce": "aa"})
	many(t, c, 10_000-missing, func(i int) (string, string, string, any) {
		return "POST", d.Path("/commit"), d.Tokens[i], sealed.Act("commit")
	})
	return d
}

func waits(n int, headers int) func(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
	return func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		d := e2e.NewClient(t, stack.BaseURL()).Create(e2e.SplitBody(hour, 2*hour))
		pad := strings.Repeat("a: "+strings.Repeat("x", 118)+"\r\n", headers)
		return held(n, fmt.Sprintf("GET %s?wait=45 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s\r\n", d.Path(""), d.Tokens[0], pad))
	}
}

// leaving asks for answers on connections that the server closes after them, reads none, and keeps the connections.
func leaving(path string) func(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
	return func(_ *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		text := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
		return func(ctx context.Context, from *crowd) {
			var all sync.WaitGroup
			for i := range 32 {
				all.Go(func() {
					dialer := net.Dialer{
						LocalAddr: &net.TCPAddr{IP: net.ParseIP(from.addresses[i%len(from.addresses)])},
						Control: func(_, _ string, raw syscall.RawConn) error {
							return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
						},
					}
					for ctx.Err() == nil {
						if conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(stack.BaseURL(), "http://")); err == nil {
							defer conn.Close()
							_, _ = io.WriteString(conn, text)
						}
						e2e.Pause(ctx, 10*time.Millisecond)
					}
				})
			}
			all.Wait()
		}
	}
}

// trailers sends bodies whose headers announce thousands of trailers, and whose trailers have a thousand lines.
func trailers(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
	body := `{"certificate":[` + strings.Repeat("0,", 1900) + "0]}"
	var announced, lines strings.Builder
	for i := range 2000 {
		name := string([]byte{byte('a' + i/676), byte('a' + i/26%26), byte('a' + i%26)})
		if announced.WriteString(name + ","); i < 800 {
			lines.WriteString(name + ":\n")
		}
	}
	return held(4000, fmt.Sprintf("POST /v1/verify HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTrailer: %sx\r\n\r\n%x\r\n%s\r\n0\r\n%s\r\n", &announced, len(body), body, &lines))
}

var further = []attack{
	{"z unread answers on connections that close", leaving("/openapi.json")},
	{"a openapi.json, 128 connections", get(128, "/openapi.json")},
	{"b pages, 128 connections", get(128, "/", "/protocol", "/d/x", "/new", "/reference", "/llms.txt")},
	{"c tools/list, 128 connections", func(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
		return flood(128, func(int) (string, string, string, any) {
			return "POST", "/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
		})
	}},
	{"c initialize, 128 connections", func(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
		return flood(128, func(int) (string, string, string, any) {
			return "POST", "/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`
		})
	}},
	{"d tree head, 300 connections", get(300, "/v1/log/tree-head")},
	{"d log, 300 connections", get(300, "/v1/log/status", "/checkpoint", "/tile/0/000.p/2", "/tile/entries/000", "/v1/log/consistency?first=1&second=2", "/v1/log/proof?leaf_index=0", "/v1/log/proof?leaf_index=%zz", "/tile/0/x999/x999/999")},
	{"e bodies with trailers, 4,000 connections", trailers},
	{"f waits, 4,000 connections", waits(4000, 1)},
	{"f waits with headers of 11 KB, 4,000 connections", waits(4000, 90)},
	{"f waits since an ETag on a large deal, 500 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		d := committedLarge(t, stack, 500)
		var next atomic.Int64
		next.Store(9500)
		return func(ctx context.Context, from *crowd) {
			sealed := e2e.Seal(t, e2e.Body{"nonce": "aa"})
			var all sync.WaitGroup
			all.Go(func() {
				for ctx.Err() == nil && next.Load() < 9995 {
					_, _ = from.clients[0].Try(ctx, "POST", d.Path("/commit"), d.Tokens[next.Add(1)], sealed.Act("commit"))
					e2e.Pause(ctx, 20*time.Millisecond)
				}
			})
			flood(500, func(int) (string, string, string, any) {
				return "GET", d.Path("?wait=45&since=AAAAAAAAAAAAAAAAAAAAAAAA"), d.Tokens[0], nil
			})(ctx, from)
			all.Wait()
		}
	}},
	{"g MCP waits, 2,000 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		d := e2e.NewClient(t, stack.BaseURL()).Create(e2e.SplitBody(hour, 2*hour))
		body := tool("get_deal", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[0], "wait_seconds": 45, "x": strings.Repeat("x", 7000)})
		body = strings.Replace(body, `,"x":"`, `}},"_":"`, 1)
		body = strings.TrimSuffix(body, `}}}`) + `}`
		return held(2000, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	}},
	{"h compute_commitment with timelock, 500 KB, 64 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		c := e2e.NewClient(t, stack.BaseURL())
		d := c.Create(e2e.RandomBody(2, stack.Chain().RoundAt(time.Now().Add(3*hour).Unix())+1, hour, 2*hour))
		input := e2e.Body{"nonce": "aa", "x": strings.Repeat("x", 3000)}
		return flood(64, func(int) (string, string, string, any) {
			return "POST", "/mcp", "", tool("compute_commitment_tool", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[0], "input": input, "salt": "aa", "timelock": true})
		})
	}},
	{"h compute_commitment, 900 KB in small values, 64 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"compute_commitment_tool","arguments":{"salt":"a","input":{"x":[` + strings.Repeat(`{"":0},`, 65_000) + `0]}}}}`
		return flood(64, func(int) (string, string, string, any) { return "POST", "/mcp", "", body })
	}},
	{"i verify, 7 MB of small values, 16 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		body := `{"certificate":{"a":[` + strings.Repeat(`{"`+strings.Repeat("a", 100)+`":0},`, 60_000) + `0]}}`
		return flood(16, func(int) (string, string, string, any) { return "POST", "/v1/verify", "", body })
	}},
	{"j keys, 300 connections", func(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
		return flood(300, func(int) (string, string, string, any) { return "POST", "/v1/keys", "", nil })
	}},
	{"k deals of 10,000 parties, 32 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		c := e2e.NewClient(t, stack.BaseURL())
		body := largeBody(stack, hour/2)
		body["title"], body["message"] = strings.Repeat("t", 80), strings.Repeat("m", 400)
		var keys []string
		for range 8 {
			keys = append(keys, c.Key())
		}
		return flood(32, func(i int) (string, string, string, any) { return "POST", "/v1/deals", keys[i%8], body })
	}},
	{"l garbage seals of 700 KB, 64 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		d := e2e.NewClient(t, stack.BaseURL()).Create(e2e.SplitBody(hour, 2*hour))
		body := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{}}).Act("commit")
		body["seal"] = "-----BEGIN AGE ENCRYPTED FILE-----\n" + strings.Repeat(strings.Repeat("A", 64)+"\n", 10_000) + "-----END AGE ENCRYPTED FILE-----\n"
		return flood(64, func(int) (string, string, string, any) { return "POST", d.Path("/commit"), d.Tokens[0], body })
	}},
	{"m one Idempotency-Key, reveals of 1 MB, 100 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		d := e2e.NewClient(t, stack.BaseURL()).Create(e2e.SplitBody(hour, 2*hour))
		body := `{"input":{"valuations":{"a":[` + strings.Repeat(`{"":0},`, 60_000) + `0]}},"salt":"a"}`
		return flood(100, func(int) (string, string, string, any) { return "POST", d.Path("/reveal"), d.Tokens[0], body }, "Idempotency-Key", "one")
	}},
	{"n gzip bomb as a body, 64 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(make([]byte, 64<<20))
		_ = z.Close()
		body := b.String()
		return flood(64, func(int) (string, string, string, any) { return "POST", "/v1/verify", "", body }, "Content-Encoding", "gzip")
	}},
	{"o pipelined reads, 64 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		return held(64, strings.Repeat("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n", 20_000))
	}},
	{"o pipelined openapi.json without gzip, read, 64 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		return held(64, strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", 2_000))
	}},
	{"p declaration of a large deal, 64 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		d := committedLarge(t, stack, 9000)
		return flood(64, func(int) (string, string, string, any) { return "GET", d.Path("/declaration"), d.Tokens[0], nil })
	}},
	{"p view of a large deal with If-None-Match, 64 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		d := committedLarge(t, stack, 9000)
		tag := e2e.NewClient(t, stack.BaseURL()).Want(200, "GET", d.Path(""), d.Tokens[0], nil).Header.Get("ETag")
		return flood(64, func(int) (string, string, string, any) { return "GET", d.Path(""), d.Tokens[0], nil }, "If-None-Match", tag)
	}},
	{"q bundle and certificate of a large deal, 64 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		d := largeDeals(t, stack, 1)[0]
		return flood(64, func(i int) (string, string, string, any) {
			return "GET", d.Path([]string{"/bundle", "/certificate"}[i%2]), d.Tokens[0], nil
		})
	}},
	{"r long paths and queries, 300 connections", get(300, "/"+strings.Repeat("a/", 5000), "/v1/status?"+strings.Repeat("a=b&", 2500), "/v1/log/proof?"+strings.Repeat("a=b&", 1000), "/v1/verify/"+strings.Repeat("c", 8000))},
	{"s tool calls of all kinds with a batch, 200 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		bodies := []string{"[" + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"tools/list"},`, 1000) + "{}]", tool("list_algorithms", e2e.Body{"vectors": true}), tool("verify_certificate", e2e.Body{"certificate": e2e.Body{"a": strings.Repeat("x", 50_000)}})}
		return flood(200, func(i int) (string, string, string, any) { return "POST", "/mcp", "", bodies[i%len(bodies)] })
	}},
	{"t cancels and creates, 64 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		c := e2e.NewClient(t, stack.BaseURL())
		var keys []string
		for range 16 {
			keys = append(keys, c.Key())
		}
		return flood(64, func(i int) (string, string, string, any) {
			return "POST", "/v1/deals", keys[i%16], e2e.SplitBody(hour, 2*hour)
		})
	}},
	{"u seals of 1,000 parties, 64 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		c := e2e.NewClient(t, stack.BaseURL())
		by := e2e.After(hour)
		d := c.Create(e2e.Timed(e2e.Retained(e2e.RandomBody(1000, stack.Chain().RoundAt(by+7200)+1, 0, 0), "open", "standard"), by, by+3600))
		many(t, c, len(d.Tokens), func(i int) (string, string, string, any) {
			return "POST", d.Path("/commit"), d.Tokens[i], e2e.Seal(t, e2e.Body{"nonce": "aa"}).Timelocked(stack.Chain(), d, i, by)
		})
		return flood(64, func(i int) (string, string, string, any) { return "GET", d.Path("/seals"), d.Tokens[i], nil })
	}},
	{"v public view of a large deal, GET and HEAD, 64 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		body := largeBody(stack, hour/2)
		body["audience"] = "public"
		d := e2e.NewClient(t, stack.BaseURL()).Create(body)
		return flood(64, func(i int) (string, string, string, any) {
			return []string{"GET", "HEAD"}[i%2], "/v1/public/" + d.ID, "", nil
		})
	}},
	{"w unknown public deals, 300 connections", func(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
		return flood(300, func(int) (string, string, string, any) {
			return "GET", "/v1/public/d_" + rand.Text()[:21] + "A", "", nil
		})
	}},
	{"y unread bodies, and headers that are too large, 300 connections", func(*testing.T, *localstack.Stack) func(context.Context, *crowd) {
		texts := []string{"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n", "GET / HTTP/1.1\r\na: " + strings.Repeat("a", 30_000)}
		return func(ctx context.Context, from *crowd) {
			var all sync.WaitGroup
			for i := range 300 {
				all.Go(func() {
					for ctx.Err() == nil {
						from.hold(ctx, i, texts[i%2])
					}
				})
			}
			all.Wait()
		}
	}},
	{"x HEAD of bundles and others with If-None-Match, 128 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		d := largeDeals(t, stack, 1)[0]
		paths := []string{"/bundle", "/inputs", "/certificate", "/declaration"}
		return flood(128, func(i int) (string, string, string, any) {
			return "HEAD", d.Path(paths[i%len(paths)]), d.Tokens[0], nil
		}, "If-None-Match", `"AAAAAAAAAAAAAAAAAAAAAAAA"`)
	}},
}

// TestFurtherAttacks runs attacks that are not in the review.
func TestFurtherAttacks(t *testing.T) {
	withoutAutogroup(t)
	stack := attacked(t)
	for _, a := range append(further, queued...) {
		t.Run(a.name, func(t *testing.T) { a.run(t, stack, a.prepare(t, stack), 1, 4*time.Second) })
	}
}
