//go:build long

package abuse

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// chartLimit is GOMEMLIMIT of deal-api in the chart: 90 % of 1 GiB.
const chartLimit = "GOMEMLIMIT=921MiB"

// TestWhatAReplicaHolds measures what charts/fairpact/runbooks/operations.md says of a replica with the chart's limits.
func TestWhatAReplicaHolds(t *testing.T) {
	shareCores(t)
	stack := attacked(t)
	for _, row := range []struct {
		what    string
		n       int
		request func(*e2e.CreatedDeal) string
	}{
		{"waiting calls over REST", 8000, func(d *e2e.CreatedDeal) string {
			return fmt.Sprintf("GET %s?wait=45 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", d.Path(""), d.Tokens[0])
		}},
		{"waiting calls over MCP", 4500, func(d *e2e.CreatedDeal) string {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_deal","arguments":{"deal_id":%q,"invite_token":%q,"wait_seconds":45}}}`, d.ID, d.Tokens[0])
			return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}},
	} {
		t.Run(row.what, func(t *testing.T) {
			e2e.Must(t, stack.Restart(t.Context(), localstack.DealAPI, chartLimit, "GOMAXPROCS=", "FAIRPACT_LOG_LEVEL=error"))
			d := e2e.NewClient(t, stack.BaseURL()).Create(e2e.SplitBody(hour, 2*hour))
			before := peak(t, stack)
			conns := make([]net.Conn, row.n)
			for i := range conns {
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(3+i/250), byte(1+i%250))}}
				c, err := dialer.Dial("tcp", strings.TrimPrefix(stack.BaseURL(), "http://"))
				e2e.Must(t, err)
				defer c.Close()
				_, err = c.Write([]byte(row.request(d)))
				e2e.Must(t, err)
				conns[i] = c
			}
			e2e.Pause(t.Context(), 5*time.Second)
			held := peak(t, stack)
			began := time.Now()
			d.Commit(0, e2e.Seal(t, e2e.Body{"valuations": e2e.Body{}}))
			var all sync.WaitGroup
			var answered atomic.Int64
			for _, c := range conns {
				all.Go(func() {
					_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
					a, err := http.ReadResponse(bufio.NewReader(c), nil)
					if err == nil && a.StatusCode == 200 {
						answered.Add(1)
					}
				})
			}
			all.Wait()
			t.Logf("ROW | %s | %d of %d answered %.1f s after the change | %d KB each | peak %d MB |", row.what, answered.Load(), row.n, time.Since(began).Seconds(), (held-before)/int64(row.n)>>10, peak(t, stack)>>20)
			if int(answered.Load()) != row.n {
				t.Errorf("%d of %d calls were answered, want all", answered.Load(), row.n)
			}
		})
	}
	t.Run("readers of a deal with 10,000 parties", func(t *testing.T) {
		e2e.Must(t, stack.Restart(t.Context(), localstack.DealAPI, chartLimit, "GOMAXPROCS=", "FAIRPACT_LOG_LEVEL=error"))
		d := committedLarge(t, stack, 500)
		for _, n := range []int{1, 64, 256} {
			var reads, bad atomic.Int64
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			clients := newCrowd(t, stack, 32)
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() {
					for ctx.Err() == nil {
						a, err := clients.clients[i%32].Try(ctx, "GET", d.Path(""), d.Tokens[i], nil, "Accept-Encoding", "identity")
						if err == nil && a.Status == 200 {
							reads.Add(1)
						} else if ctx.Err() == nil {
							bad.Add(1)
						}
					}
				})
			}
			all.Wait()
			cancel()
			t.Logf("ROW | %d readers of a view of 1.3 MB | %d/s, %d refused | peak %d MB |", n, reads.Load()/5, bad.Load(), peak(t, stack)>>20)
			if bad.Load() > 0 {
				t.Errorf("%d reads beside %d others failed, want none", bad.Load(), n)
			}
		}
	})
}
