package limits

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"
)

const (
	quick = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	long  = "GET /long HTTP/1.1\r\nHost: a\r\n\r\n"
)

func boundedServer(t *testing.T, most int, proxy func(netip.Addr) bool) (*Connections, *httptest.Server) {
	c := NewConnections(most, proxy, func(conn net.Conn) { fmt.Fprint(conn, "HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\n") })
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	server.Listener = c.Bound(server.Listener, server.Config)
	server.Start()
	t.Cleanup(server.CloseClientConnections)
	return c, server
}

// opens sends a request on a new connection. The last result is the HTTP status, or 0 without an answer.
func opens(t *testing.T, server *httptest.Server, from, request string) (net.Conn, *bufio.Reader, int) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		return conn, r, 0
	}
	return conn, r, answer.StatusCode
}

func TestTheLongestIdleConnectionMakesRoom(t *testing.T) {
	_, server := boundedServer(t, 8, func(netip.Addr) bool { return true })
	var first *bufio.Reader
	for i := range 100 {
		_, r, status := opens(t, server, "127.0.0.1", quick)
		if status != 200 {
			t.Fatalf("connection %d: status %d, want 200", i, status)
		}
		if i == 0 {
			first = r
		}
	}
	if _, err := first.ReadByte(); err != io.EOF {
		t.Errorf("the connection that was idle longest: %v, want EOF", err)
	}
}

func TestOneAddressHoldsHalfAndAProxyAll(t *testing.T) {
	proxy := netip.MustParseAddr("127.0.0.9")
	c, server := boundedServer(t, 8, func(a netip.Addr) bool { return a == proxy })
	for i := range 4 {
		if _, _, status := opens(t, server, "127.0.0.1", long); status != 200 {
			t.Fatalf("connection %d: status %d, want 200", i, status)
		}
	}
	if _, _, status := opens(t, server, "127.0.0.1", long); status == 200 {
		t.Error("one address has more than half of the connections, want the next one refused")
	}
	var last net.Conn
	for i := range 4 {
		conn, _, status := opens(t, server, "127.0.0.9", long)
		if status != 200 {
			t.Fatalf("connection %d of another address: status %d, want 200", i, status)
		}
		last = conn
	}
	if _, _, status := opens(t, server, "127.0.0.2", quick); status == 200 {
		t.Error("more connections are served than the bound, want the next one refused")
	}
	last.Close()
	for served := false; !served; {
		_, _, status := opens(t, server, "127.0.0.2", quick)
		served = status == 200
	}
	server.CloseClientConnections()
	server.Close()
	for { // the server reports a closed connection with a delay
		c.mu.Lock()
		idle := c.idle.Len()
		c.mu.Unlock()
		open, peers := c.shares.Held()
		if open == 0 && peers == 0 && idle == 0 {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("after the end %d connections are counted, of %d peers, %d idle; want none", open, peers, idle)
		case <-time.After(time.Millisecond):
		}
	}
}

// fake is a connection from an address. It needs no socket.
type fake struct {
	net.Conn
	from   string
	closed bool
}

func (f *fake) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.from + ":1"))
}
func (f *fake) Close() error { f.closed = true; return nil }

func idleFrom(t testing.TB, c *Connections, from string) *fake {
	t.Helper()
	conn := &fake{from: from}
	one := c.admit(conn)
	if one == nil {
		t.Fatalf("a connection from %s is refused, want it to replace an idle one", from)
	}
	c.note(one, http.StateIdle)
	return conn
}

func TestANetworkOverItsShareReplacesItsOwnIdleConnection(t *testing.T) {
	c := NewConnections(8, nil, func(net.Conn) {})
	other := idleFrom(t, c, "192.0.2.2")
	var own []*fake
	for range 6 {
		own = append(own, idleFrom(t, c, "192.0.2.1"))
	}
	for i, conn := range own {
		if want := i < 2; conn.closed != want {
			t.Errorf("connection %d of the network is closed: %t, want %t", i, conn.closed, want)
		}
	}
	if other.closed {
		t.Error("the connection of another network is closed, want it open")
	}
}

// The time of an admission over the share must not depend on how many connections of other
// networks are idle.
func BenchmarkAdmitOverTheShare(b *testing.B) {
	for _, others := range []int{0, 4000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			c := NewConnections(8192, nil, func(net.Conn) {})
			for i := range others {
				idleFrom(b, c, fmt.Sprintf("10.0.%d.%d", i/256, i%256))
			}
			for range 4096 {
				idleFrom(b, c, "192.0.2.1")
			}
			for b.Loop() {
				idleFrom(b, c, "192.0.2.1")
			}
		})
	}
}
