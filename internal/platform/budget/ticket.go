package budget

import (
	"container/heap"
	"context"
	"time"
)

// Return gives the ticket back. Further calls do nothing.
func (t *Ticket) Return() {
	t.budget.mu.Lock()
	defer t.budget.unlock()
	if t.network == nil {
		return
	}
	l, one := &t.budget.lanes[t.lane], t.network
	l.unblock(t)
	t.resize(0)
	t.network = nil
	one.tickets--
	l.forget(one)
}

// Shrink gives back all but n units. A smaller ticket stays as it is.
func (t *Ticket) Shrink(n int64) {
	t.budget.mu.Lock()
	defer t.budget.unlock()
	if t.network != nil && n >= 0 && n < t.units {
		t.resize(n)
		t.units = n
	}
}

// Grow makes the ticket n units large, or returns false and changes nothing. It does not wait,
// because two holders could wait for each other.
func (t *Ticket) Grow(n int64) bool {
	b := t.budget
	b.mu.Lock()
	defer b.unlock()
	l := &b.lanes[t.lane]
	if t.network == nil || t.evicted || n > t.units && (l.turns.Len() > 0 || n > l.most || !b.fits(l, n-t.units)) {
		return false
	}
	if n > t.units {
		t.resize(n)
		t.units = n
	}
	return true
}

// resize counts n units instead of t.units, which the caller MUST set if the ticket stays.
func (t *Ticket) resize(n int64) {
	l := &t.budget.lanes[t.lane]
	if t.evicted {
		l.leaving += n - t.units
		t.network.leaving += n - t.units
	}
	t.budget.add(l, t.network, n-t.units)
}

// Units returns the size of the ticket; 0: returned.
func (t *Ticket) Units() int64 {
	t.budget.mu.Lock()
	defer t.budget.mu.Unlock()
	if t.network == nil {
		return 0
	}
	return t.units
}

// Evictable says that the holder waits for its client until it calls Busy. Meanwhile the ticket may be
// evicted: then `evict` is called once. It MUST return at once and end the wait, for example by
// closing the connection, and the holder MUST then return the ticket. Evictable returns false if
// the ticket is evicted or returned. Calling it again restarts Options.Patience.
func (t *Ticket) Evictable(evict func()) bool {
	b := t.budget
	b.mu.Lock()
	defer b.unlock()
	if t.network == nil || t.evicted {
		return false
	}
	l, one := &b.lanes[t.lane], t.network
	t.evict, t.since = evict, time.Now()
	if t.blocked[0] != nil {
		l.blocked.MoveToBack(t.blocked[0])
		one.blocked.MoveToBack(t.blocked[1])
		return true
	}
	t.blocked[0], t.blocked[1] = l.blocked.PushBack(t), one.blocked.PushBack(t)
	if one.index < 0 {
		heap.Push(&l.blocking, one)
	}
	return true
}

// Busy ends Evictable. It returns false if the ticket was evicted or returned.
func (t *Ticket) Busy() bool {
	b := t.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.network == nil || t.evicted {
		return false
	}
	b.lanes[t.lane].unblock(t)
	return true
}

// Yield passes the ticket to the next waiter of the lane, if any, and waits for its turn again. If it
// returns an error, the ticket is returned. Long computations call Yield every few milliseconds.
func (t *Ticket) Yield(ctx context.Context) error {
	b := t.budget
	b.mu.Lock()
	waited := b.lanes[t.lane].turns.Len() > 0
	b.mu.Unlock()
	if !waited && ctx.Err() == nil {
		return nil
	}
	t.Return()
	return b.take(ctx, t)
}
