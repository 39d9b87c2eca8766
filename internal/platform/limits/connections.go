package limits

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"golang.org/x/sync/semaphore"
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

// ErrTotal and ErrShare are returned by Shares.Take for an exceeded bound.
var (
	ErrTotal = errors.New("the bound of all networks is exceeded")
	ErrShare = errors.New("the share of the network is exceeded")
)

// Shares counts what each client network (see Network) holds of one thing, for example bytes
// or connections. One bound limits all networks together, another one limits each network. The
// network "" has no share of its own. Shares is safe for concurrent use.
type Shares struct {
	most, each int64

	mu sync.Mutex
	// mu guards the fields below. A network that holds nothing has no entry.
	total    int64
	networks map[string]*share
}

type share struct {
	held  int64               // with the calls that block in Wait
	turns *semaphore.Weighted // only for Wait
	idle  list.List           // only for Connections: of *connection, longest idle first; guarded by Connections.mu
}

// NewShares bounds all networks together to `most` (not by Wait), and each network to `each`.
func NewShares(most, each int64) *Shares {
	return &Shares{most: most, each: each, networks: map[string]*share{}}
}

func newAnswers(most int64) *Shares { return NewShares(most, most/networkShare) }

// Take counts n more for a network. If a bound would be exceeded, Take counts nothing and
// returns ErrShare or ErrTotal. `own` is what the same call has taken before: a network may
// exceed its share for a single call, because waiting for itself would not help.
func (s *Shares) Take(network string, own, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.of(network).held
	switch {
	case network != "" && held > own && held+n > s.each:
		return ErrShare
	case s.total+n > s.most:
		return ErrTotal
	}
	s.add(network, n)
	return nil
}

// Wait takes 1 for a network, and blocks while the network holds its share. It returns an error
// if ctx ends first. Leave gives back what Wait took.
func (s *Shares) Wait(ctx context.Context, network string) error {
	s.mu.Lock()
	s.add(network, 1)
	turns := s.of(network).turns
	s.mu.Unlock()
	err := turns.Acquire(ctx, 1)
	if err != nil {
		s.Release(network, 1)
	}
	return err
}

// Leave gives back what Wait took.
func (s *Shares) Leave(network string) {
	s.mu.Lock()
	turns := s.of(network).turns
	s.mu.Unlock()
	s.Release(network, 1)
	turns.Release(1)
}

// Waits reports whether a call of the network blocks in Wait.
func (s *Shares) Waits(network string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.networks[network]
	return one != nil && one.held > s.each
}

// Release gives back n of what Take took.
func (s *Shares) Release(network string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(network, -n)
}

// idleOf returns the idle list of a network that holds something. It is the same list until the
// network holds nothing.
func (s *Shares) idleOf(network string) *list.List {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &s.of(network).idle
}

func (s *Shares) of(network string) *share {
	one := s.networks[network]
	if one == nil {
		one = &share{turns: semaphore.NewWeighted(s.each)}
	}
	return one
}

func (s *Shares) add(network string, n int64) {
	one := s.of(network)
	one.held += n
	s.total += n
	if s.networks[network] = one; one.held == 0 {
		delete(s.networks, network)
	}
}

// Held returns what all networks hold together, and the number of networks that hold something.
func (s *Shares) Held() (total int64, networks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, len(s.networks)
}
