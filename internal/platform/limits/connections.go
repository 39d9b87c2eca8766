package limits

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// Connections bounds the open connections of a port. At the bound, a new connection
// replaces the connection that has been idle longest. If no connection is idle, the new one
// is refused.
type Connections struct {
	proxy   func(netip.Addr) bool
	refused func(net.Conn)

	shares *Shares

	mu   sync.Mutex
	idle *list.List // of *connection, longest idle first; guarded by mu
}

// Connections.mu guards the fields of an admitted connection, except Conn and network.
type connection struct {
	net.Conn
	network string        // as in Shares; "" for a proxy
	gone    bool          // closed or hijacked, so no longer counted
	idle    *list.Element // element of Connections.idle; nil: not idle
}

// CloseWrite is called by net/http before it closes a connection whose client still sends, so
// that the client does not lose the answer.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// NewConnections bounds a port to `most` open connections, of which one network may have half,
// but a proxy all. `proxy` may be nil. `refused` answers a connection before it is closed, and
// MUST NOT block.
func NewConnections(most int, proxy func(netip.Addr) bool, refused func(net.Conn)) *Connections {
	return &Connections{shares: NewShares(int64(most), int64(max(1, most/2))), proxy: proxy, refused: refused, idle: list.New()}
}

// Bound returns a bounded listener for the server, whose ConnState it sets.
func (c *Connections) Bound(l net.Listener, server *http.Server) net.Listener {
	server.ConnState = c.note
	return bounded{l, c}
}

type bounded struct {
	net.Listener
	in *Connections
}

// Accept implements net.Listener.
func (b bounded) Accept() (net.Conn, error) {
	for {
		accepted, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if one := b.in.admit(accepted); one != nil {
			return one, nil
		}
		b.in.refused(accepted)
		_ = accepted.Close()
	}
}

// admit counts a connection. At a bound, admit first closes an idle connection, or returns
// nil if no connection is idle.
func (c *Connections) admit(accepted net.Conn) *connection {
	var address netip.Addr // stays zero for a peer without an IP address
	if from, err := netip.ParseAddrPort(accepted.RemoteAddr().String()); err == nil {
		address = from.Addr().Unmap()
	}
	network := Network(address.String())
	if c.proxy != nil && c.proxy(address) {
		network = ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		err := c.shares.Take(network, 0, 1)
		switch {
		case err == nil:
			return &connection{Conn: accepted, network: network}
		case !c.closeIdle(func(one *connection) bool { return err == ErrTotal || one.network == network }):
			return nil
		}
	}
}

func (c *Connections) closeIdle(may func(*connection) bool) bool {
	for e := c.idle.Front(); e != nil; e = e.Next() {
		if one := e.Value.(*connection); may(one) {
			c.forget(one)
			_ = one.Close()
			return true
		}
	}
	return false
}

func (c *Connections) note(conn net.Conn, state http.ConnState) {
	one, ok := conn.(*connection)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case one.gone:
	case state == http.StateIdle:
		one.idle = c.idle.PushBack(one)
	case state == http.StateActive:
		c.busy(one)
	case state == http.StateClosed, state == http.StateHijacked:
		c.forget(one)
	}
}

func (c *Connections) busy(one *connection) {
	if one.idle != nil {
		c.idle.Remove(one.idle)
		one.idle = nil
	}
}

func (c *Connections) forget(one *connection) {
	c.busy(one)
	one.gone = true
	c.shares.Release(one.network, 1)
}
