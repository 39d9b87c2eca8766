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
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func descriptors(t *testing.T, stack *localstack.Stack) int {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", stack.PID(localstack.DealAPI)))
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// manyConnections opens more connections than one address may hold. The limit of an address is half
// of FAIRPACT_MAX_CONNECTIONS. deal-api must close the surplus connections, and still serve a deal.
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
		_ = conn.SetReadDeadline(time.Now().Add(e2e.DefaultTimeout))
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for i := range idle {
		answer, err := http.ReadResponse(bufio.NewReader(dial("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")), nil)
		if err != nil || answer.StatusCode != 200 {
			t.Fatalf("GET /v1/status on connection %d: %v (%v), want 200", i, answer, err)
		}
		answer.Body.Close()
	}
	for range slow {
		dial("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n{")
	}
	survived(t, stack)
	// 100 more descriptors are allowed for other uses, such as connections to the database.
	if now := descriptors(t, stack); now > before+most/2+100 {
		t.Errorf("deal-api has %d open descriptors, want at most %d: it had %d before the attack, and one address may hold %d connections", now, before+most/2+100, before, most/2)
	}
}
