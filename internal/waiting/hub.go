// Package waiting lets calls wait for a change of a deal and costs nothing but
// memory meanwhile: a waiting call holds no connection to a server.
//
//	a use case changes a deal   Changed: looked at, and announced to the other replicas
//	another replica announces   Heard: looked at
//	every lookSlowly            all deals that are waited for are looked at
//	every lookEvery             the same, while no announcements can arrive
//
// To look is one statement for all deals together (store.Marks). It wakes the
// calls whose deal is not as they saw it, and each reads the deal for itself. So
// an announcement that is lost delays an answer and loses nothing, and a change
// that was made by hand or by an older release is found as well.
package waiting

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// Longest is the longest that a call may wait: with its answer it is below the
// 60 s after which most clients and proxies give up.
const Longest = 45 * time.Second

const (
	lookEvery   = time.Second
	lookSlowly  = 5                     // of lookEvery, while announcements arrive
	betweenTwo  = 10 * time.Millisecond // looks: under load one serves more deals
	lookTimeout = 5 * time.Second

	// Connections is the default of FAIRPACT_MAX_CONNECTIONS. Of the connections of a
	// process three quarters may wait, about 30 kB each, and of one client network a
	// quarter: the rest is for other calls.
	Connections = 8192
)

// Hub holds the calls of a process that wait. It is safe for concurrent use.
type Hub struct {
	read      func(ctx context.Context, dealIDs []string) ([]store.Marked, error)
	announce  func(dealID string)
	logger    *slog.Logger
	connected atomic.Bool

	maxCalls, maxNetwork int

	mu       sync.Mutex
	deals    map[string]map[*Call]struct{}
	networks map[string]int
	calls    int
	touched  map[string]struct{} // deals to look at
	look     chan struct{}       // holds one where touched is not empty
	ended    chan struct{}
	end      func()
}

// New makes a hub for a process that serves Connections. read is store.Marks; announce tells the other replicas of a
// change and does not block; nil: there are no others.
func New(read func(context.Context, []string) ([]store.Marked, error), announce func(dealID string), logger *slog.Logger) *Hub {
	ended := make(chan struct{})
	h := &Hub{
		read: read, announce: announce, logger: logger,
		deals: map[string]map[*Call]struct{}{}, networks: map[string]int{}, touched: map[string]struct{}{},
		look: make(chan struct{}, 1), ended: ended, end: sync.OnceFunc(func() { close(ended) }),
	}
	h.Bound(Connections)
	return h
}

// Bound lets as many calls wait as a process may that serves that many
// connections; 0: as many as one that serves Connections. Call it before Join.
func (h *Hub) Bound(connections int) {
	if connections <= 0 {
		connections = Connections
	}
	h.maxCalls, h.maxNetwork = max(1, connections/4*3), max(1, connections/4)
}

// Changed says that this process has changed a deal. It does not block.
func (h *Hub) Changed(dealID string) {
	h.Heard(dealID)
	if h.announce != nil {
		h.announce(dealID)
	}
}

// Heard says that deals may have changed.
func (h *Hub) Heard(dealIDs ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range dealIDs {
		if _, waited := h.deals[id]; waited {
			h.touch(id)
		}
	}
}

func (h *Hub) touch(dealID string) {
	h.touched[dealID] = struct{}{}
	select {
	case h.look <- struct{}{}:
	default:
	}
}

// Connected notes whether announcements of other replicas arrive from now on.
// Earlier ones may be lost.
func (h *Hub) Connected(now bool) {
	if h.connected.Swap(now) == now || !now {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.deals {
		h.touch(id)
	}
}

// End ends all waits, also those to come: the process drains.
func (h *Hub) End() { h.end() }

// Run looks at the deals that are waited for until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	failed := false
	for n := 1; ; {
		var wanted []string
		all := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if n++; h.connected.Load() && !failed && n%lookSlowly != 0 {
				continue
			}
			wanted, all = h.waitedFor(), true
		case <-h.look:
			wanted = h.takeTouched()
		}
		if len(wanted) == 0 {
			continue
		}
		err := h.lookAt(ctx, wanted)
		if err != nil && !failed && ctx.Err() == nil {
			h.logger.WarnContext(ctx, "deals that are waited for cannot be looked at, retrying", "err", err)
		}
		failed = err != nil || failed && !all // what a failed look missed, one at all deals finds
		select {
		case <-ctx.Done():
		case <-time.After(betweenTwo):
		}
	}
}

func (h *Hub) waitedFor() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]string, 0, len(h.deals))
	for id := range h.deals {
		ids = append(ids, id)
	}
	return ids
}

func (h *Hub) takeTouched() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]string, 0, len(h.touched))
	for id := range h.touched {
		ids = append(ids, id)
	}
	clear(h.touched)
	return ids
}

// lookAt reads deals and wakes the calls whose deal is not as they saw it.
func (h *Hub) lookAt(ctx context.Context, dealIDs []string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	looks.Inc()
	marked, err := h.read(ctx, dealIDs)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range marked {
		for c := range h.deals[m.DealID] {
			if m.Due || !c.knows(m.Mark) {
				c.Wake()
			}
		}
	}
	return err
}

// Call is one call that waits for a deal.
type Call struct {
	hub             *Hub
	dealID, network string
	changed         chan struct{} // holds one where the deal may have changed

	// What the caller has seen, and whether it waits for another state only.
	// Guarded by hub.mu; nothing is seen at first.
	seen      *store.Mark
	stateOnly bool
}

// Join begins to watch a deal for a call from a client network. Leave MUST
// follow. A change after Join ends the next Wait.
func (h *Hub) Join(dealID, network string) (*Call, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.networks[network] >= h.maxNetwork:
		return nil, problem.New(problem.RateLimited, "%d calls from your network wait at this replica already; send the same request again in a few seconds, or without a wait", h.maxNetwork).After(5)
	case h.calls >= h.maxCalls:
		return nil, problem.New(problem.Overloaded, "too many calls wait at this replica; send the same request again in a few seconds, or without a wait").After(5)
	}
	c := &Call{hub: h, dealID: dealID, network: network, changed: make(chan struct{}, 1)}
	if h.deals[dealID] == nil {
		h.deals[dealID] = map[*Call]struct{}{}
	}
	h.deals[dealID][c] = struct{}{}
	h.networks[network]++
	h.calls++
	waitingCalls.Inc()
	return c, nil
}

// Leave ends the watch.
func (c *Call) Leave() {
	h := c.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.deals[c.dealID], c)
	if len(h.deals[c.dealID]) == 0 {
		delete(h.deals, c.dealID)
		delete(h.touched, c.dealID)
	}
	if h.networks[c.network]--; h.networks[c.network] == 0 {
		delete(h.networks, c.network)
	}
	h.calls--
	waitingCalls.Dec()
}

// Wait waits until the deal is not as the caller saw it: with stateOnly, until
// its state is another or its certificate is published. It is false where the
// time is up, ctx has ended or the process drains.
func (c *Call) Wait(ctx context.Context, seen store.Mark, stateOnly bool, timeUp <-chan time.Time) bool {
	c.hub.mu.Lock()
	c.seen, c.stateOnly = &seen, stateOnly
	c.hub.mu.Unlock()
	select {
	case <-c.hub.ended:
		return false
	default:
	}
	select {
	case <-c.changed:
		return true
	case <-c.hub.ended:
	case <-timeUp:
	case <-ctx.Done():
	}
	return false
}

// knows reports whether the caller has seen the deal so.
func (c *Call) knows(now store.Mark) bool {
	return c.seen != nil && c.seen.Same(now, c.stateOnly)
}

// Wake ends the next Wait, or the one under way, as a change does.
func (c *Call) Wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
