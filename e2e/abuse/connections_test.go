package abuse

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// descriptors returns the number of open files and connections of deal-api.
func descriptors(t *testing.T, stack *localstack.Stack) int {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", stack.PID(localstack.DealAPI)))
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// One address opens more connections than it may hold. deal-api closes those that were idle
// the longest, also those that wait for a body, and serves another client.
func manyConnections(t *testing.T, stack *localstack.Stack) {
	const most, idle, slow = 1000, 2000, 200
	e2e.Must(t, stack.Restart(t.Context(), "deal-api", fmt.Sprintf("FAIRPACT_MAX_CONNECTIONS=%d", most)))
	before := descriptors(t, stack)
	address := strings.TrimPrefix(stack.BaseURL(), "http://")
	dial := func(request string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetReadDeadline(time.Now().Add(e2e.Patience))
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for i := range idle {
		answer, err := http.ReadResponse(bufio.NewReader(dial("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")), nil)
		if err != nil || answer.StatusCode != 200 {
			t.Fatalf("connection %d: %v, %v", i, answer, err)
		}
		answer.Body.Close()
	}
	for range slow {
		dial("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n{")
	}
	survived(t, stack)
	// 100 for connections that are being closed, those of the database and those of the deal.
	if now := descriptors(t, stack); now > before+most/2+100 {
		t.Errorf("deal-api has %d open descriptors, and had %d before the attack; one address may hold %d connections", now, before, most/2)
	}
}
