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

// Connections.mu guards the fields of an admitted connection, except Conn, network and peers.
type connection struct {
	net.Conn
	network string        // as in Shares; "" for a proxy
	peers   *list.List    // idle connections of the network, longest idle first
	gone    bool          // closed or hijacked, so no longer counted
	ofAll   *list.Element // element of Connections.idle; nil: not idle
	ofPeers *list.Element // element of peers; nil: not idle
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
		idle := c.idle
		switch err := c.shares.Take(network, 0, 1); err {
		case nil:
			return &connection{Conn: accepted, network: network, peers: c.shares.idleOf(network)}
		case ErrShare:
			idle = c.shares.idleOf(network)
		}
		if !c.closeFirst(idle) {
			return nil
		}
	}
}

// closeFirst closes the connection that has been idle longest. It reports whether there was one.
func (c *Connections) closeFirst(idle *list.List) bool {
	first := idle.Front()
	if first == nil {
		return false
	}
	one := first.Value.(*connection)
	c.forget(one)
	_ = one.Close()
	return true
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
		one.ofAll, one.ofPeers = c.idle.PushBack(one), one.peers.PushBack(one)
	case state == http.StateActive:
		c.busy(one)
	case state == http.StateClosed, state == http.StateHijacked:
		c.forget(one)
	}
}

func (c *Connections) busy(one *connection) {
	if one.ofAll != nil {
		c.idle.Remove(one.ofAll)
		one.peers.Remove(one.ofPeers)
		one.ofAll, one.ofPeers = nil, nil
	}
}

func (c *Connections) forget(one *connection) {
	c.busy(one)
	one.gone = true
	c.shares.Release(one.network, 1)
}
