// Package waiting lets API calls wait for a change of a deal. A waiting call uses no connection
// to the database or Redis. The hub polls the deals of waiting calls. Each poll is one SQL
// statement (store.Store.Progress). The hub polls:
//
//	when                                             which deals
//	this process changes a deal                      that deal (Notify)
//	another replica announces changes                the announced deals (NotifyLocal)
//	the subscription to announcements begins         all (SetConnected)
//	every slowPollFactor × pollInterval              all
//	every pollInterval without a subscription        all
//	every pollInterval after a failed poll, until
//	a poll of all deals succeeds                     all
//
// A poll wakes each call whose deal has changed since the call read the deal, or has passed a
// deadline that is not processed yet. The woken call reads its deal again. A lost announcement
// only delays the call's answer, because the periodic polls of all deals find the change. These
// polls also find changes that somebody made directly in the database.
package waiting

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Longest is the longest time that a call can wait for a change of its deal. Most clients and
// proxies give up after 60 s, so 15 s are left to send the answer.
const Longest = 45 * time.Second

const (
	pollInterval = time.Second
	// slowPollFactor × pollInterval is the interval of polls of all deals while the process
	// receives announcements of other replicas.
	slowPollFactor = 5
	// batchDelay is the pause after each poll, so that under load one SQL statement reads more
	// deals.
	batchDelay  = 10 * time.Millisecond
	lookTimeout = 5 * time.Second

	// Connections is the default of FAIRPACT_MAX_CONNECTIONS. Waiting calls can use three
	// quarters of the connections of a process, so that the rest is left for other calls.
	// The waiting calls of one client network can use one quarter. A client network is an
	// IPv4 address or an IPv6 /64. A waiting call needs about 30 kB of memory.
	Connections = 8192
)

// Hub holds the waiting calls of a process. It is safe for concurrent use.
type Hub struct {
	read      func(ctx context.Context, dealIDs []string) ([]store.DealProgress, error)
	announce  func(dealID string)
	logger    *slog.Logger
	connected atomic.Bool

	maxNetwork int
	calls      *limits.Shares // waiting calls

	mu      sync.Mutex
	deals   map[string]map[*Waiter]struct{}
	touched map[string]struct{} // ids of deals that may have changed
	look    chan struct{}       // tells Run that touched is not empty
	ended   chan struct{}
	end     func()
}

// New returns a hub with the default limits (see Bound). `read` is the method Progress of
// store.Store. `announce` tells the other replicas that a deal has changed, and MUST NOT block;
// it is nil if there are no other replicas.
func New(read func(context.Context, []string) ([]store.DealProgress, error), announce func(dealID string), logger *slog.Logger) *Hub {
	ended := make(chan struct{})
	h := &Hub{
		read: read, announce: announce, logger: logger,
		deals: map[string]map[*Waiter]struct{}{}, touched: map[string]struct{}{},
		look: make(chan struct{}, 1), ended: ended, end: sync.OnceFunc(func() { close(ended) }),
	}
	h.Bound(Connections)
	return h
}

// Bound limits how many calls can wait. The limits are fractions of `connections`, the maximum
// number of connections to the process. If `connections` is 0 or negative, Bound uses the constant
// Connections. Call Bound before Join.
func (h *Hub) Bound(connections int) {
	if connections <= 0 {
		connections = Connections
	}
	h.maxNetwork = max(1, connections/4)
	h.calls = limits.NewShares(int64(max(1, connections/4*3)), int64(h.maxNetwork))
}

// Notify tells the hub and the other replicas that this process has changed a deal. It does
// not block.
func (h *Hub) Notify(dealID string) {
	h.NotifyLocal(dealID)
	if h.announce != nil {
		h.announce(dealID)
	}
}

// NotifyLocal tells the hub that deals may have changed.
func (h *Hub) NotifyLocal(dealIDs ...string) {
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

// SetConnected tells the hub whether it receives announcements of other replicas from now on. At
// a change from false to true, the hub polls the deals of all waiting calls, because it may have
// missed announcements.
func (h *Hub) SetConnected(now bool) {
	if h.connected.Swap(now) == now || !now {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.deals {
		h.touch(id)
	}
}

// End ends all current and later waits. The process calls End when it drains.
func (h *Hub) End() { h.end() }

// Run polls the deals of waiting calls periodically and after each notification. It wakes the
// calls whose deal has changed or has passed a deadline that is not processed yet. It returns
// when ctx ends.
func (h *Hub) Run(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	failed := false
	for n := 1; ; {
		var wanted []string
		all := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if n++; h.connected.Load() && !failed && n%slowPollFactor != 0 {
				continue
			}
			h.mu.Lock()
			wanted, all = slices.Collect(maps.Keys(h.deals)), true
			h.mu.Unlock()
		case <-h.look:
			h.mu.Lock()
			wanted = slices.Collect(maps.Keys(h.touched))
			clear(h.touched)
			h.mu.Unlock()
		}
		if len(wanted) == 0 {
			continue
		}
		err := h.poll(ctx, wanted)
		if err != nil && !failed && ctx.Err() == nil {
			h.logger.WarnContext(ctx, "cannot read the deals with waiting calls, retrying", "err", err)
		}
		failed = err != nil || failed && !all // failed stays true until a poll of all deals succeeds
		select {
		case <-ctx.Done():
		case <-time.After(batchDelay):
		}
	}
}

// poll reads a summary of each deal (store.Progress). It wakes each call whose deal is overdue
// or differs from the summary that the call passed to Wait. A deal is overdue if it has passed a
// deadline that is not processed yet.
func (h *Hub) poll(ctx context.Context, dealIDs []string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	looks.Inc()
	progress, err := h.read(ctx, dealIDs)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range progress {
		for c := range h.deals[p.DealID] {
			if p.Due || !c.knows(p.Progress) {
				c.Wake()
			}
		}
	}
	return err
}

// Waiter is one API call that may wait for a change of a deal.
type Waiter struct {
	hub             *Hub
	dealID, network string
	changed         chan struct{} // capacity 1; has an element if the deal may have changed since the last Wait

	// The arguments of the latest Wait; known is nil before the first Wait. hub.mu guards both.
	known     *store.Progress
	stateOnly bool
}

// Join begins to watch a deal for a call from a client network. The caller MUST call Leave
// afterwards. A change between Join and Wait also ends the Wait. The error is RATE_LIMITED if
// too many calls of the network wait, and OVERLOADED if too many calls of the process wait.
func (h *Hub) Join(dealID, network string) (*Waiter, error) {
	switch h.calls.Take(network, 0, 1) {
	case limits.ErrShare:
		return nil, problem.New(problem.RateLimited, "%d calls from your network already wait at this replica; send the same request again in a few seconds, or send it now without a wait", h.maxNetwork).WithRetryAfter(5)
	case limits.ErrTotal:
		return nil, problem.New(problem.Overloaded, "too many calls wait at this replica; send the same request again in a few seconds, or send it now without a wait").WithRetryAfter(5)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &Waiter{hub: h, dealID: dealID, network: network, changed: make(chan struct{}, 1)}
	if h.deals[dealID] == nil {
		h.deals[dealID] = map[*Waiter]struct{}{}
	}
	h.deals[dealID][c] = struct{}{}
	waitingCalls.Inc()
	return c, nil
}

// Leave removes the waiting call from the hub. The caller MUST call Leave exactly once.
func (c *Waiter) Leave() {
	h := c.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.deals[c.dealID], c)
	if len(h.deals[c.dealID]) == 0 {
		delete(h.deals, c.dealID)
		delete(h.touched, c.dealID)
	}
	h.calls.Release(c.network, 1)
	waitingCalls.Dec()
}

// Wait waits until the deal may differ from `known`, and returns true. If stateOnly
// is true, Wait ignores commitments and reveals that do not change the state (see
// store.Progress.Same). Wait returns false if timeUp fires, ctx ends or the process drains.
func (c *Waiter) Wait(ctx context.Context, known store.Progress, stateOnly bool, timeUp <-chan time.Time) bool {
	c.hub.mu.Lock()
	c.known, c.stateOnly = &known, stateOnly
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

func (c *Waiter) knows(now store.Progress) bool {
	return c.known != nil && c.known.Same(now, c.stateOnly)
}

// Wake makes the current or next Wait return true, as a change of the deal does.
func (c *Waiter) Wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
