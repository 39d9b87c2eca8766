package budget

import (
	"container/list"
	"time"
)

// Ticket is the right to hold some units until Return. Its methods are safe for concurrent use. A nil
// Ticket has no units.
type Ticket struct {
	budget  *Budget
	network *network
	wants   int64         // units that it waits for
	ready   chan struct{} // closed when it has them; nil: it had them at once

	// Budget.mu guards the fields below.
	state   state
	units   int64
	evict   func()
	since   time.Time     // blocked since
	blocked *list.Element // in network.blocked; nil: cannot be evicted
}

type state int

const (
	waits state = iota // to be granted
	held
	evicted
	returned
)

func (t *Ticket) grant() {
	t.state = held
	t.resize(t.wants)
}

// Return gives the ticket back. It does nothing if the ticket is nil or was returned.
func (t *Ticket) Return() {
	if t == nil {
		return
	}
	t.budget.mu.Lock()
	defer t.budget.unlock()
	if t.state != returned {
		t.end()
	}
}

func (t *Ticket) end() {
	t.unblock()
	t.resize(0)
	t.state = returned
	if t.network.tickets--; t.network.tickets == 0 {
		delete(t.budget.networks, t.network.name)
	}
}

// Resize makes the ticket n units large, and reports whether it is. It does not wait: a ticket that
// would have to stays as it is.
func (t *Ticket) Resize(n int64) bool {
	if t == nil {
		return n <= 0
	}
	b := t.budget
	b.mu.Lock()
	defer b.unlock()
	if more := n - t.units; n < 0 || more > 0 && (t.state != held || b.turns.Len() > 0 || more > b.Size-b.used) {
		return false
	}
	t.resize(n)
	return true
}

func (t *Ticket) resize(n int64) {
	more := n - t.units
	t.units = n
	t.budget.used += more
	if t.state == evicted {
		t.budget.leaving += more
	} else {
		t.network.held += more
	}
}

// Units returns the size of the ticket; 0: returned.
func (t *Ticket) Units() int64 {
	if t == nil {
		return 0
	}
	t.budget.mu.Lock()
	defer t.budget.mu.Unlock()
	return t.units
}

// Evictable says that the holder waits for its client until it calls Busy. Meanwhile the ticket may be
// evicted: then `evict` is called once. It MUST return at once and end the wait, for example by
// closing the connection, and the holder MUST then return the ticket. Calling Evictable again changes nothing.
func (t *Ticket) Evictable(evict func()) {
	if t == nil {
		return
	}
	t.budget.mu.Lock()
	defer t.budget.unlock()
	if t.state == held && t.blocked == nil {
		t.evict, t.since = evict, time.Now()
		t.blocked = t.network.blocked.PushBack(t)
	}
}

// Busy ends Evictable. It returns false if the ticket was evicted or returned.
func (t *Ticket) Busy() bool {
	if t == nil {
		return true
	}
	t.budget.mu.Lock()
	defer t.budget.mu.Unlock()
	t.unblock()
	return t.state == held
}

func (t *Ticket) unblock() {
	if t.blocked != nil {
		t.network.blocked.Remove(t.blocked)
		t.evict, t.blocked = nil, nil
	}
}

// A client has patience, and the time in which it takes or sends the bytes of its ticket at pace.
const (
	patience = time.Second
	pace     = 8 << 20 // bytes a second
)

// late reports whether the holder has been blocked for longer than its client needs.
func (t *Ticket) late() bool {
	return time.Since(t.since) >= patience+time.Duration(t.units)*time.Second/pace
}
