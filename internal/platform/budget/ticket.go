package budget

import (
	"container/list"
	"context"
	"time"
)

// Ticket is the right to hold some units until Return. Its methods are safe for concurrent use.
type Ticket struct {
	budget  *Budget
	network *network

	// Budget.mu guards the fields below.
	state   state
	units   int64
	deep    int64 // of these, from Options.Growth
	evict   func()
	since   time.Time        // blocked since
	blocked [2]*list.Element // in Budget.blocked and network.blocked; nil: cannot be evicted
}

type state int

const (
	waits state = iota // to be granted
	held
	evicted
	returned
)

// Return gives the ticket back. It does nothing if the ticket is nil or was returned.
func (t *Ticket) Return() {
	if t == nil {
		return
	}
	b, one := t.budget, t.network
	b.mu.Lock()
	defer b.unlock()
	if t.state == returned {
		return
	}
	b.unblock(t)
	t.resize(0)
	t.state = returned
	one.tickets--
	if one.tickets == 0 {
		delete(b.networks, one.name)
	}
}

// Shrink gives back all but n units. A smaller ticket stays as it is.
func (t *Ticket) Shrink(n int64) {
	t.budget.mu.Lock()
	defer t.budget.unlock()
	if n >= 0 && n < t.units {
		t.resize(n)
	}
}

// Grow makes the ticket n units large, and waits for that like Take. Meanwhile the ticket still counts.
func (t *Ticket) Grow(ctx context.Context, n int64) error {
	more := n - t.Units()
	switch {
	case n > t.budget.Size:
		return ErrNever
	case !t.Busy():
		return ErrFull
	case more <= 0:
		return nil
	}
	err := t.budget.take(ctx, t, more)
	if err == nil && t.Units() < n { // evicted or returned meanwhile
		err = ErrFull
	}
	return err
}

// TryGrow is like Grow but does not wait (see Try). It reports whether the ticket is n units large.
func (t *Ticket) TryGrow(n int64) bool { return t.Grow(ended, n) == nil }

// resize makes the ticket n units large.
func (t *Ticket) resize(n int64) {
	b, more := t.budget, n-t.units
	b.used += more
	if t.state == evicted {
		b.leaving += more
	} else {
		t.network.hold(b, more)
	}
	deep := min(t.deep, max(0, -more)) // what is given back is first given back to Growth
	t.deep -= deep
	b.deep -= deep
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
// the ticket is evicted or returned. Calling it again counts as a new wait.
func (t *Ticket) Evictable(evict func()) bool {
	b := t.budget
	b.mu.Lock()
	defer b.unlock()
	if t.state != held {
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
	if t.state != held {
		return false
	}
	b.unblock(t)
	return true
}
