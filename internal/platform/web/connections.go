package web

import (
	"context"
	"math"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/caller"
)

const (
	// Bytes of a socket; the kernel doubles them.
	sendBuffer    = 128 << 10
	mostUnsent    = 2 * sendBuffer
	receiveBuffer = 32 << 10         // of half the size, a MB after a pause takes 90 ms instead of 13, even if it grows later
	unackedTime   = 20 * time.Second // after which the kernel closes a connection whose client takes nothing
)

// Listener accepts connections that replace the errors of net/http itself, such as the 400
// for a request that net/http cannot parse. The replacement has the JSON body of SPEC 7.1.
//
// It also bounds the open connections. At the bound, a new connection replaces one that waits
// for its client (one that is silent, idle, or has sent half of a header or body), or whose call waits for
// other parties. Of these, it replaces the one that has waited longest of the network with the most. If there is none, the new
// one is refused. A network may have half of the connections, and a sixteenth once three quarters are
// in use; then its new connections replace its own.
type Listener struct {
	net.Listener
	proxy   func(netip.Addr) bool
	refused func(net.Conn)
	open    *budget.Budget // of connections
	parsing chan struct{}  // holds one while a long header is parsed
}

// NewListener returns a Listener for the server, whose ConnState and ConnContext it sets. If most is 0,
// connections are not bounded. `proxy` reports whether an address is a proxy, which has no bound of its own; it may be nil.
// `refused` answers a connection before it is closed, and MUST NOT block.
func NewListener(l net.Listener, server *http.Server, most int, proxy func(netip.Addr) bool, refused func(net.Conn)) *Listener {
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	server.ConnState = func(c net.Conn, state http.ConnState) {
		one, ok := c.(*conn)
		if !ok {
			return
		}
		switch state {
		case http.StateActive:
			one.parsed()
			one.lines = -1 // also if the header came behind another request: what is read now is no header
			one.busy()
		case http.StateIdle:
			one.lines, one.text = 0, false
			one.waits()
		case http.StateClosed:
			one.parsed()
		}
	}
	if most <= 0 {
		most = math.MaxInt
	}
	open := budget.New(budget.Options{Size: int64(most), Bound: max(1, int64(most)/16)})
	return &Listener{Listener: l, proxy: proxy, refused: refused, open: open, parsing: make(chan struct{}, 1)}
}

// Accept implements net.Listener. It changes only TCP connections.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		tcp, ok := accepted.(*net.TCPConn)
		if err != nil || !ok {
			return accepted, err
		}
		one := &conn{TCPConn: tcp, of: l, network: l.network(tcp), call: budget.From(context.Background())}
		if one.ticket, ok = l.open.Try(one.network, 1); !ok {
			l.refused(one)
			_ = tcp.Close() // at once, because nothing counts it
			continue
		}
		one.waits()
		bound(tcp)
		return one, nil
	}
}

// network returns "" for a proxy.
func (l *Listener) network(c *net.TCPConn) string {
	from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	if l.proxy != nil && l.proxy(from) {
		return ""
	}
	return caller.Network(from.String())
}

// bound bounds what the kernel keeps for a client that does not read. Errors are ignored, because
// the connection works without.
func bound(c *net.TCPConn) {
	_ = c.SetWriteBuffer(sendBuffer)
	_ = c.SetReadBuffer(receiveBuffer)
	control(c, func(fd int) {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedTime/time.Millisecond))
	})
}

func control(c syscall.Conn, do func(fd int)) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) })
	}
}
