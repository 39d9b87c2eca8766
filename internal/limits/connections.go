package limits

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/fairpact/fairpact/internal/caller"
)

// Connections bounds the open connections of a port. Where there are too many, the
// one that has been idle longest is closed for a new one: HTTP clients expect that
// of a server at any time. Where none is idle the new one is refused, so that
// those that are being served are not disturbed.
type Connections struct {
	most    int                   // of all
	each    int                   // of one address, but for those that speak for many
	many    func(netip.Addr) bool // reports whether an address is a proxy
	refused func(net.Conn)        // answers a connection that is then closed

	mu sync.Mutex
	// All below are guarded by mu.
	open  int
	peers map[string]*peer // by network, see caller.Network
	idle  *list.List       // of *connection, the longest idle first
}

// peer is the connections of one network.
type peer struct {
	network string
	open    int
	idle    *list.List // as in Connections
}

// connection is one that was admitted. All but Conn is guarded by Connections.mu.
type connection struct {
	net.Conn
	peer   *peer         // nil: it counts no more
	ofAll  *list.Element // nil: it is not idle
	ofPeer *list.Element
}

// CloseWrite ends what is sent. net/http does so before it closes a connection on
// which a client still sends; without it the client may lose the answer.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// NewConnections bounds a port to most connections, of which one address may hold
// half. many reports whether an address is a proxy, which may hold all; nil: none
// is. refused writes to a connection that is then closed; it MUST NOT block.
func NewConnections(most int, many func(netip.Addr) bool, refused func(net.Conn)) *Connections {
	return &Connections{most: most, each: max(1, most/2), many: many, refused: refused, peers: make(map[string]*peer), idle: list.New()}
}

// Bound returns a listener that accepts connections under the bounds, for server
// and no other.
func (c *Connections) Bound(l net.Listener, server *http.Server) net.Listener {
	server.ConnState = c.note
	return bounded{l, c}
}

type bounded struct {
	net.Listener
	in *Connections
}

// Accept waits for the next connection that is admitted.
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

// admit returns nil for a connection too many.
func (c *Connections) admit(accepted net.Conn) *connection {
	var address netip.Addr // of no network: all that have none are one
	if from, err := netip.ParseAddrPort(accepted.RemoteAddr().String()); err == nil {
		address = from.Addr().Unmap()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	network := caller.Network(address.String())
	p, known := c.peers[network]
	if !known {
		p = &peer{network: network, idle: list.New()}
	}
	if p.open >= c.each && (c.many == nil || !c.many(address)) && !c.closeIdle(p.idle) || c.open >= c.most && !c.closeIdle(c.idle) {
		return nil
	}
	c.peers[network] = p
	p.open++
	c.open++
	return &connection{Conn: accepted, peer: p}
}

// closeIdle closes the connection that has been idle longest, if there is one.
func (c *Connections) closeIdle(of *list.List) bool {
	first := of.Front()
	if first == nil {
		return false
	}
	one := first.Value.(*connection)
	c.forget(one)
	_ = one.Close()
	return true
}

// note is the ConnState of the server.
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

// busy takes a connection out of the idle ones.
func (c *Connections) busy(one *connection) {
	if one.ofAll != nil {
		c.idle.Remove(one.ofAll)
		one.peer.idle.Remove(one.ofPeer)
		one.ofAll, one.ofPeer = nil, nil
	}
}

// forget counts a connection no more.
func (c *Connections) forget(one *connection) {
	c.busy(one)
	c.open--
	if one.peer.open--; one.peer.open == 0 {
		delete(c.peers, one.peer.network)
	}
	one.peer = nil
}
