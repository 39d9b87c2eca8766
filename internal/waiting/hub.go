// Package waiting lets calls wait for a change of a deal. A waiting call costs only memory:
// it uses no connection to the database or Redis. The hub reads the deals of waiting calls.
// Each read is one SQL statement (store.Marks), called a look. The hub looks:
//
//	when                                       at which deals
//	a use case of this process changes a deal  that deal (Changed, which also announces the change)
//	another replica announces changes          the announced deals (Heard)
//	Connected changes to true                  all
//	every slowPollFactor × pollInterval               all
//	every pollInterval, while Connected is false  all
//	every pollInterval, after a failed look       all
//
// A look wakes each call whose deal has a due step or differs from what the call knows. The
// call then reads its deal. If an announcement is lost, the answer is only delayed, because the
// periodic looks at all deals find the change. These looks also find changes that somebody
// made directly in the database.
package waiting

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// Longest is the longest time that a call can wait. Most clients and proxies give up after
// 60 s, so there is time left for the answer.
const Longest = 45 * time.Second

const (
	pollInterval   = time.Second
	slowPollFactor = 5                     // while Connected is true, Run reads all deals every slowPollFactor × pollInterval
	batchDelay     = 10 * time.Millisecond // pause after a read of the deals, so that one read serves more deals under load
	lookTimeout    = 5 * time.Second

	// Connections is the default of FAIRPACT_MAX_CONNECTIONS. Waiting calls can use three
	// quarters of the connections of a process, so that the rest is left for other calls.
	// The waiting calls of one client network can use one quarter. A waiting call needs
	// about 30 kB.
	Connections = 8192
)

// Hub holds the waiting calls of a process. It is safe for concurrent use.
type Hub struct {
	read      func(ctx context.Context, dealIDs []string) ([]store.DealProgress, error)
	announce  func(dealID string)
	logger    *slog.Logger
	connected atomic.Bool

	maxCalls, maxNetwork int

	mu       sync.Mutex
	deals    map[string]map[*Waiter]struct{}
	networks map[string]int
	calls    int
	touched  map[string]struct{} // ids of deals that may have changed
	look     chan struct{}       // tells Run that touched is not empty
	ended    chan struct{}
	end      func()
}

// New returns a hub with the default bounds (see Bound). read is the method Marks of store.Store.
// announce tells the other replicas that a deal has changed, and MUST NOT block; nil if there are
// no other replicas.
func New(read func(context.Context, []string) ([]store.DealProgress, error), announce func(dealID string), logger *slog.Logger) *Hub {
	ended := make(chan struct{})
	h := &Hub{
		read: read, announce: announce, logger: logger,
		deals: map[string]map[*Waiter]struct{}{}, networks: map[string]int{}, touched: map[string]struct{}{},
		look: make(chan struct{}, 1), ended: ended, end: sync.OnceFunc(func() { close(ended) }),
	}
	h.Bound(Connections)
	return h
}

// Bound limits how many calls can wait. The limits are fractions of the number of connections
// that the process serves; 0 means the constant Connections. Call Bound before Join.
func (h *Hub) Bound(connections int) {
	if connections <= 0 {
		connections = Connections
	}
	h.maxCalls, h.maxNetwork = max(1, connections/4*3), max(1, connections/4)
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
// a change from false to true, the hub looks at all deals of waiting calls, because it may have
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

// Run reads the deals of waiting calls when the package comment says so, and wakes the calls whose
// deal has changed or has a due step. It returns when ctx ends.
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
		failed = err != nil || failed && !all // failed stays true until a look at all deals succeeds
		select {
		case <-ctx.Done():
		case <-time.After(batchDelay):
		}
	}
}

// poll reads a summary of each deal (store.Mark). It wakes each call whose deal has a due step or
// whose deal differs from the summary that the call passed to Wait.
func (h *Hub) poll(ctx context.Context, dealIDs []string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	looks.Inc()
	marked, err := h.read(ctx, dealIDs)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range marked {
		for c := range h.deals[m.DealID] {
			if m.Due || !c.knows(m.Progress) {
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
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.networks[network] >= h.maxNetwork:
		return nil, problem.New(problem.RateLimited, "%d calls from your network already wait at this replica; send the same request again in a few seconds, or send it now without a wait", h.maxNetwork).WithRetryAfter(5)
	case h.calls >= h.maxCalls:
		return nil, problem.New(problem.Overloaded, "too many calls wait at this replica; send the same request again in a few seconds, or send it now without a wait").WithRetryAfter(5)
	}
	c := &Waiter{hub: h, dealID: dealID, network: network, changed: make(chan struct{}, 1)}
	if h.deals[dealID] == nil {
		h.deals[dealID] = map[*Waiter]struct{}{}
	}
	h.deals[dealID][c] = struct{}{}
	h.networks[network]++
	h.calls++
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
	if h.networks[c.network]--; h.networks[c.network] == 0 {
		delete(h.networks, c.network)
	}
	h.calls--
	waitingCalls.Dec()
}

// Wait waits until the deal may differ from `known`, and returns true. If stateOnly
// is true, Wait ignores commitments and reveals that do not change the state (see
// store.Mark.Same). Wait returns false if timeUp fires, ctx ends or the process drains.
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
