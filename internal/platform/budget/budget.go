// Package budget is the accountant of a process. It grants what calls hold (bytes of memory, turns
// at the CPU, or connections) before they hold it, shares it fairly between client networks, and
// takes it back from clients that keep the process waiting.
//
// Work takes a Ticket of n units for a network from a Budget. A process has one Budget for each kind of
// work, so that one kind cannot take what another needs (see Process).
//
// Order. A budget serves its waiters round robin by network, and those of one network first come,
// first served. While others wait, a network that holds more than its share, a quarter, is passed over.
//
// Growth. Tickets that grow wait for Options.Growth, which one of them at a time may use, or for what is
// not needed by new tickets of networks within their share. The one of the network that holds least
// comes first. Only Options.Wait bounds how long they wait: many networks could keep one waiting.
//
// Eviction. If a waiter does not fit, a ticket is evicted that is blocked on its client (see
// Ticket.Evictable): the one blocked longest of the network that holds most. A ticket of a network
// within its share is evicted only once it has been blocked for a second (patience). An evicted ticket
// counts until its holder returns it, but no longer for its network.
//
// No waiter for a new ticket starves, provided that each holder returns its ticket after a bounded time:
// only tickets that grow pass the next waiter, each of which was granted before, and a network that was
// passed over holds nothing after that time. To avoid deadlocks, holders MUST wait for further tickets in
// one order: memory, one of a kind (Call.One), a turn at the CPU. Exceptions are PublicDeal, whose holders
// may wait for large memory and a LargeRead, because nobody waits for it with either; and
// Ticket.Grow, because the ticket that uses Options.Growth never waits for others.
package budget

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

var (
	// ErrNever is returned for a ticket that is larger than the budget.
	ErrNever = errors.New("budget: the ticket is larger than the budget")
	// ErrFull is returned after Options.Wait, and by Grow for a ticket that was evicted or returned.
	ErrFull = errors.New("budget: waited too long for others to return their tickets")
)

// patience is how long a ticket of a network within its share may block on its client before it can
// be evicted.
const patience = time.Second

// Options configures a Budget.
type Options struct {
	Size int64 // units
	// Wait is the longest time that Take waits, rounded up to seconds. 0: until ctx ends.
	Wait time.Duration
	// Bound, if not 0, is what one network may hold once the budget is three quarters full, whether
	// its tickets can be evicted or not. Before, it may hold half of the budget. The network "" has no
	// bound. Such a budget MUST be used with Try only: a waiter over its bound would stop the others.
	Bound int64
	// Growth is what only Ticket.Grow may take, and only for one ticket at a time. It should be what a
	// ticket can grow in all.
	Growth int64
	// Lease makes a ticket return by itself if others wait once it has been held for a second.
	Lease bool
}

// Budget is safe for concurrent use.
type Budget struct {
	Options

	mu sync.Mutex
	// mu guards the fields below and those of networks, waiters and tickets. Invariants:
	//   - used is the sum of the tickets, leaving that of the evicted ones that are not returned yet,
	//     and network.held that of the network's others;
	//   - used-deep is at most Size-Growth, and deep at most Growth;
	//   - a network is in networks while it has tickets, in turns while it waits for new ones, and in
	//     blocking while one of its tickets can be evicted.
	used, leaving int64
	networks      map[string]*network
	turns         list.List // of *network that wait for new tickets, next one first
	growing       list.List // of *waiter that enlarge tickets, longest first
	deep          int64     // sum of Ticket.deep, which only one ticket at a time has
	blocked       list.List // of *Ticket that can be evicted, blocked longest first
	blocking      byHeld    // the networks of these tickets, as a heap with the largest first
}

type network struct {
	name    string
	held    int64
	tickets int           // also those that it waits for; some may have 0 units
	waiters list.List     // of *waiter for new tickets, next one first
	turn    *list.Element // in Budget.turns; nil: the network does not wait
	blocked list.List     // of *Ticket that can be evicted, blocked longest first
	index   int           // in Budget.blocking; -1: none of its tickets can be evicted
}

type waiter struct {
	ticket  *Ticket
	units   int64         // that the ticket gets
	ready   chan struct{} // closed when it has them
	element *list.Element // in Budget.growing or network.waiters; nil: it has them
}

// New returns an empty budget.
func New(o Options) *Budget {
	return &Budget{Options: o, networks: map[string]*network{}}
}

// Take waits for a ticket of n units for a network. It returns ErrNever, ErrFull, or the error of ctx.
// The caller MUST call Return.
func (b *Budget) Take(ctx context.Context, network string, n int64) (*Ticket, error) {
	if n < 0 || n > b.Size-b.Growth {
		return nil, ErrNever
	}
	t := &Ticket{budget: b, network: b.join(network)}
	if err := b.take(ctx, t, n); err != nil {
		t.Return()
		return nil, err
	}
	return t, nil
}

// Try is like Take but does not wait. It evicts what a waiter could have evicted, and succeeds only if
// these tickets are returned within the calls of their evict functions.
func (b *Budget) Try(network string, n int64) (*Ticket, bool) {
	t, err := b.Take(ended, network, n)
	return t, err == nil
}

// ended is a context with which Take and Grow do not wait.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// join returns the network of a new ticket.
func (b *Budget) join(name string) *network {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.networks[name]
	if one == nil {
		one = &network{name: name, index: -1}
		b.networks[name] = one
	}
	one.tickets++
	return one
}

// take waits until a ticket, which may be a new one, has n more units.
func (b *Budget) take(ctx context.Context, t *Ticket, n int64) (err error) {
	w := &waiter{ticket: t, units: n}
	b.mu.Lock()
	if b.turns.Len() == 0 && b.growing.Len() == 0 && b.fits(w) {
		b.grant(w)
		b.mu.Unlock()
		return nil
	}
	w.ready = make(chan struct{})
	if one := t.network; t.state != waits {
		w.element = b.growing.PushBack(w)
	} else {
		w.element = one.waiters.PushBack(w)
		if one.turn == nil {
			one.turn = b.turns.PushBack(one)
		}
	}
	b.unlock()
	began, again := time.Now(), time.NewTicker(patience) // time alone makes tickets evictable
	defer again.Stop()
	for err == nil {
		select {
		case <-w.ready:
			return nil
		case <-again.C:
			b.mu.Lock()
			b.unlock()
			if b.Wait > 0 && time.Since(began) >= b.Wait {
				err = ErrFull
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.unlock()
	if w.element == nil { // granted meanwhile
		return nil
	}
	b.leave(w)
	return err
}

// next returns the waiter that is served next, or nil.
func (b *Budget) next() *waiter {
	next := b.nextGrowing()
	if next != nil && b.fromGrowth(next) {
		return next
	}
	for e := b.turns.Front(); e != nil; e = e.Next() {
		one := e.Value.(*network)
		first := one.waiters.Front().Value.(*waiter)
		if one.held == 0 || one.held+first.units <= b.share() {
			return first
		}
		if next == nil {
			next = first
		}
	}
	return next
}

// nextGrowing returns the waiter of the ticket that uses Growth, if Growth has enough for it, or else of the network
// that holds least.
func (b *Budget) nextGrowing() (next *waiter) {
	for e := b.growing.Front(); e != nil; e = e.Next() {
		w := e.Value.(*waiter)
		if w.ticket.deep > 0 && b.fromGrowth(w) {
			return w
		}
		if next == nil || w.ticket.network.held < next.ticket.network.held {
			next = w
		}
	}
	return next
}

// fromGrowth reports whether a waiter can be served from Growth.
func (b *Budget) fromGrowth(w *waiter) bool {
	return w.ticket.state != waits && b.deep == w.ticket.deep && b.deep+w.units <= b.Growth
}

// share is what a network may hold while others wait.
func (b *Budget) share() int64 { return b.Size / 4 }

// free returns the units that new tickets can get.
func (b *Budget) free() int64 { return b.Size - b.Growth - (b.used - b.deep) }

func (b *Budget) fits(w *waiter) bool {
	return !b.over(w) && (b.fromGrowth(w) || w.units <= b.free())
}

// over reports whether the network of a waiter would exceed its bound.
func (b *Budget) over(w *waiter) bool {
	one, most := w.ticket.network, b.Size/2
	if b.used >= b.Size/4*3 {
		most = min(most, b.Bound)
	}
	return b.Bound > 0 && one.name != "" && one.held+w.units > max(1, most)
}

func (b *Budget) leave(w *waiter) {
	one, element := w.ticket.network, w.element
	w.element = nil
	if w.ticket.state != waits {
		b.growing.Remove(element)
		return
	}
	one.waiters.Remove(element)
	if one.waiters.Len() == 0 {
		b.turns.Remove(one.turn)
		one.turn = nil
	}
}

// unlock grants what fits, unlocks mu, and calls the functions of the tickets that it evicts.
func (b *Budget) unlock() {
	var evict []func()
	for w := b.next(); w != nil; w = b.next() {
		if b.fits(w) {
			b.leave(w)
			b.grant(w)
			close(w.ready)
			continue
		}
		t := b.evictable(w)
		if t == nil {
			break
		}
		evict = append(evict, b.evict(t))
	}
	b.mu.Unlock()
	for _, f := range evict {
		f()
	}
}

// grant gives a waiter its units, unless its ticket was evicted or returned meanwhile. After a new ticket,
// the network goes to the end of the round.
func (b *Budget) grant(w *waiter) {
	t := w.ticket
	switch turn := t.network.turn; {
	case t.state == evicted || t.state == returned:
		return
	case t.state == waits && turn != nil:
		b.turns.MoveToBack(turn)
	}
	if b.fromGrowth(w) {
		t.deep += w.units
		b.deep += w.units
	}
	t.state = held
	t.resize(t.units + w.units)
	if b.Lease {
		b.block(t, t.Return)
	}
}

func (b *Budget) waitedFor() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.turns.Len() > 0
}

// Held returns the units of all tickets.
func (b *Budget) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
