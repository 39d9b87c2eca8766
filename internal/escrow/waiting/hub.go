// Package waiting lets API calls wait for a change of a deal (long polls). A waiting call uses no
// connection to the database or Redis. The hub polls the deals of all waiting calls with one SQL
// statement:
//
//	when                                             which deals
//	this process changes a deal                      that deal (Notify)
//	another replica announces changes                the announced deals (NotifyLocal)
//	the subscription to announcements begins         all (SetConnected)
//	every slowPollFactor × pollInterval              all
//	every pollInterval without a subscription, or
//	after a failed poll until one of all succeeds    all
//
// A poll wakes each call whose deal has changed since the call read it, or is overdue: it has
// passed a deadline that is not processed yet. The woken call reads its deal again. A lost
// announcement only delays the answer until the next poll.
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
	"github.com/fairpact/fairpact/internal/platform/telemetry"
)

// Longest is the longest time that a call can wait for a change of its deal. Most clients and
// proxies give up after 60 s, so 15 s are left to send the answer.
const Longest = 45 * time.Second

const (
	pollInterval   = time.Second
	slowPollFactor = 5                     // used while the process receives announcements
	batchDelay     = 10 * time.Millisecond // pause after each poll, so that under load one statement reads more deals
	lookTimeout    = 5 * time.Second
)

// Hub holds the waiting calls of a process. It is safe for concurrent use.
type Hub struct {
	read      func(ctx context.Context, dealIDs []string) ([]store.DealProgress, error)
	announce  func(dealID string)
	logger    *slog.Logger
	connected atomic.Bool

	mu      sync.Mutex
	deals   map[string]map[*Waiter]struct{}
	touched map[string]struct{} // ids of deals that may have changed
	look    chan struct{}       // tells Run that touched is not empty
	ended   chan struct{}
	end     func()
}

// New returns a hub. `read` is store.Store.Progress. `announce` tells the other replicas that a
// deal has changed, and MUST NOT block; it may be nil.
func New(read func(context.Context, []string) ([]store.DealProgress, error), announce func(dealID string), logger *slog.Logger) *Hub {
	ended := make(chan struct{})
	h := &Hub{
		read: read, announce: announce, logger: logger,
		deals: map[string]map[*Waiter]struct{}{}, touched: map[string]struct{}{},
		look: make(chan struct{}, 1), ended: ended, end: sync.OnceFunc(func() { close(ended) }),
	}
	return h
}

// Notify tells the hub and the other replicas that this process has changed a deal.
func (h *Hub) Notify(dealID string) {
	h.NotifyLocal(dealID)
	if h.announce != nil {
		h.announce(dealID)
	}
}

// NotifyLocal tells only this hub.
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

// SetConnected tells the hub whether it receives announcements from now on. When that begins, the
// hub polls all deals, because it may have missed some.
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

// Run polls until ctx ends.
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
	hub     *Hub
	dealID  string
	enough  chan struct{} // capacity 1; not empty after End
	changed chan struct{} // capacity 1; not empty if the deal may have changed since the last Wait

	// The arguments of the latest Wait; known is nil before the first Wait. hub.mu guards both.
	known     *store.Progress
	stateOnly bool
}

// Join begins to watch a deal. A change between Join and Wait also ends the Wait. Call Leave
// afterwards.
func (h *Hub) Join(dealID string) *Waiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &Waiter{hub: h, dealID: dealID, changed: make(chan struct{}, 1), enough: make(chan struct{}, 1)}
	if h.deals[dealID] == nil {
		h.deals[dealID] = map[*Waiter]struct{}{}
	}
	h.deals[dealID][c] = struct{}{}
	waitingCalls.Inc()
	return c
}

// Leave ends the watch. Call Leave exactly once.
func (c *Waiter) Leave() {
	h := c.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.deals[c.dealID], c)
	if len(h.deals[c.dealID]) == 0 {
		delete(h.deals, c.dealID)
		delete(h.touched, c.dealID)
	}
	waitingCalls.Dec()
}

// End ends the current or next Wait.
func (c *Waiter) End() {
	select {
	case c.enough <- struct{}{}:
	default:
	}
}

// Wait returns true once the deal may differ from `known`, and false if timeUp fires, ctx ends, the
// process drains or End is called. If stateOnly is true, only a change of the state counts (store.Progress.Same).
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
	case <-c.enough:
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

var (
	waitingCalls = telemetry.NewGauge("fairpact_waiting_calls", "Calls that wait for a change of a deal.")
	looks        = telemetry.NewCounter("fairpact_waiting_looks_total", "SQL statements that read the deals of waiting calls.")
)
