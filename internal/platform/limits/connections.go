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
	most    int
	each    int
	proxy   func(netip.Addr) bool
	refused func(net.Conn)

	mu    sync.Mutex // guards the fields below
	open  int
	peers map[string]*peer // keyed by IPv4 address or IPv6 /64 (caller.Network)
	idle  *list.List       // of *connection, longest idle first
}

type peer struct {
	network string
	open    int
	idle    *list.List // of *connection, longest idle first
}

// Connections.mu guards the fields of an admitted connection, except Conn.
type connection struct {
	net.Conn
	peer   *peer         // nil: closed or hijacked, so no longer counted
	ofAll  *list.Element // element of Connections.idle; nil: not idle
	ofPeer *list.Element // element of peer.idle; nil: not idle
}

// CloseWrite shuts down the writing side. net/http calls CloseWrite before it closes a
// connection whose client still sends. Without CloseWrite, such a client may lose the answer.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// NewConnections bounds a port to `most` open connections. One network may have half of
// them, but a proxy may have all. `proxy` reports whether an address is a proxy; nil means that
// there are no proxies. `refused` answers a connection that exceeds the bounds; then the
// connection is closed. `refused` MUST NOT block.
func NewConnections(most int, proxy func(netip.Addr) bool, refused func(net.Conn)) *Connections {
	return &Connections{most: most, each: max(1, most/2), proxy: proxy, refused: refused, peers: make(map[string]*peer), idle: list.New()}
}

// Bound returns a listener that accepts connections within the bounds. Bound sets
// server.ConnState, so only `server` may use the listener.
func (c *Connections) Bound(l net.Listener, server *http.Server) net.Listener {
	server.ConnState = c.note
	return bounded{l, c}
}

type bounded struct {
	net.Listener
	in *Connections
}

// Accept returns the next connection within the bounds, and closes connections that exceed them.
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
	c.mu.Lock()
	defer c.mu.Unlock()
	network := Network(address.String())
	p, known := c.peers[network]
	if !known {
		p = &peer{network: network, idle: list.New()}
	}
	if p.open >= c.each && (c.proxy == nil || !c.proxy(address)) && !c.closeIdle(p.idle) || c.open >= c.most && !c.closeIdle(c.idle) {
		return nil
	}
	c.peers[network] = p
	p.open++
	c.open++
	return &connection{Conn: accepted, peer: p}
}

func (c *Connections) closeIdle(idle *list.List) bool {
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
	case one.peer == nil:
	case state == http.StateIdle:
		one.ofAll, one.ofPeer = c.idle.PushBack(one), one.peer.idle.PushBack(one)
	case state == http.StateActive:
		c.busy(one)
	case state == http.StateClosed, state == http.StateHijacked:
		c.forget(one)
	}
}

func (c *Connections) busy(one *connection) {
	if one.ofAll != nil {
		c.idle.Remove(one.ofAll)
		one.peer.idle.Remove(one.ofPeer)
		one.ofAll, one.ofPeer = nil, nil
	}
}

func (c *Connections) forget(one *connection) {
	c.busy(one)
	c.open--
	if one.peer.open--; one.peer.open == 0 {
		delete(c.peers, one.peer.network)
	}
	one.peer = nil
}
