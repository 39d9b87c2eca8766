package budget

import (
	"container/list"
	"time"
)

// Ticket is the right to hold some units until Return. Its methods are safe for concurrent use.
type Ticket struct {
	budget *Budget
	name   string

	// Budget.mu guards the fields below.
	network *network // nil: not granted, or returned
	units   int64
	deep    int64 // of these, from Options.Growth
	evicted bool
	evict   func()
	since   time.Time        // blocked since
	blocked [2]*list.Element // in Budget.blocked and network.blocked; nil: cannot be evicted
}

// Return gives the ticket back. Further calls do nothing.
func (t *Ticket) Return() {
	t.budget.mu.Lock()
	defer t.budget.unlock()
	t.giveBack()
}

func (t *Ticket) giveBack() {
	if one := t.network; one != nil {
		t.budget.unblock(t)
		t.resize(0)
		t.network = nil
		one.tickets--
		t.budget.forget(one)
	}
}

// Shrink gives back all but n units. A smaller ticket stays as it is.
func (t *Ticket) Shrink(n int64) {
	t.budget.mu.Lock()
	defer t.budget.unlock()
	if t.network != nil && n >= 0 && n < t.units {
		t.resize(n)
	}
}

// resize makes the ticket n units large.
func (t *Ticket) resize(n int64) {
	if t.evicted {
		t.budget.leaving += n - t.units
		t.network.leaving += n - t.units
	}
	deep := min(t.deep, max(0, t.units-n)) // what is given back is first given back to Growth
	t.deep -= deep
	t.budget.deep -= deep
	t.budget.add(t.network, n-t.units)
	t.units = n
}

// Units returns the size of the ticket; 0: returned.
func (t *Ticket) Units() int64 {
	t.budget.mu.Lock()
	defer t.budget.mu.Unlock()
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
	b.block(t, evict)
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
	b.unblock(t)
	return true
}
