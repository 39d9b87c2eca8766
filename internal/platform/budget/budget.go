// Package budget is the accountant of a process. It grants what calls hold (bytes of memory, turns
// at the CPU, or connections) before they hold it, shares it fairly between client networks, and
// takes it back from clients that keep the process waiting.
//
// Work takes a Ticket of n units for a network from a Budget. A process has one Budget for each kind of
// work, so that one kind cannot take what another needs (see Process).
//
// Order. A budget serves its waiters round robin by network, and those of one network first come,
// first served. While others wait, a network that holds more than its share is passed over. Tickets that grow come
// first: their holders keep others waiting.
//
// Eviction. If a waiter does not fit, a ticket is evicted that is blocked on its client (see
// Ticket.Evictable): the one blocked longest of the network that holds most. A ticket of a network
// within its share is evicted only once it has been blocked for Options.Patience. An evicted ticket
// counts until its holder returns it.
//
// No waiter starves, provided that each holder returns its ticket after a bounded time: nobody
// passes the next waiter but tickets that grow, and a network that was passed over holds nothing after that time. To avoid
// deadlocks, holders MUST wait for further tickets in one order: memory, one of a kind (Call.One), a turn at the
// CPU. Exceptions are Ticket.Grow, for which Options.Growth is kept, and PublicDeal, whose holders may wait for large memory
// and a LargeStatement: nobody waits for it with either.
package budget

import (
	"container/heap"
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

// Options configures a Budget.
type Options struct {
	Size int64 // units
	// Share divides the budget: while others wait, a network may hold 1/Share of it. 0 means 4.
	Share int64
	// Patience is how long a ticket of a network within its share may block on its client before it
	// can be evicted. 0 means a second.
	Patience time.Duration
	// Wait is the longest time that Take waits. 0: until ctx ends.
	Wait time.Duration
	// Bound makes Try bound what one network holds, whether it can be evicted or not: to half of the
	// budget, and to 1/Share once that is three quarters full. The network "" has no bound.
	Bound bool
	// Growth is what only Ticket.Grow may take, so that holders that grow need not wait for each other: it should be at least what a
	// ticket grows at once.
	Growth int64
	// Lease makes a ticket return by itself once its holder has kept others waiting for Patience.
	Lease bool
}

// Budget is safe for concurrent use.
type Budget struct {
	Options

	mu sync.Mutex
	// mu guards the fields below and those of networks, waiters and tickets. Invariants:
	//   - used is the sum of the tickets, and network.held that of the network's; used is at most Size;
	//   - leaving is the sum of the evicted tickets that are not returned yet;
	//   - a network is in networks while it holds or waits for something, in turns while it waits, and in
	//     blocking while one of its tickets can be evicted.
	used, leaving int64
	networks      map[string]*network
	turns         list.List // of *network that wait, next one first
	blocked       list.List // of *Ticket that can be evicted, blocked longest first
	blocking      byHeld    // the networks of these tickets, as a heap with the largest first
}

type network struct {
	name    string
	held    int64
	leaving int64
	tickets int           // some may have 0 units
	waiters list.List     // of *waiter, next one first: those that grow come before the others
	turn    *list.Element // in Budget.turns; nil: the network does not wait
	blocked list.List     // of *Ticket, blocked longest first
	index   int           // in Budget.blocking; -1: none of its tickets can be evicted
}

type waiter struct {
	ticket  *Ticket
	grows   bool          // the ticket is for Grow
	ready   chan struct{} // closed when the ticket is granted
	element *list.Element // in network.waiters; nil: granted
}

// New returns an empty budget.
func New(o Options) *Budget {
	if o.Share == 0 {
		o.Share = 4
	}
	if o.Patience == 0 {
		o.Patience = time.Second
	}
	return &Budget{Options: o, networks: map[string]*network{}}
}

// Take waits for a ticket of n units for a network. It returns ErrNever, ErrFull, or the error of ctx.
// The caller MUST call Return.
func (b *Budget) Take(ctx context.Context, network string, n int64) (*Ticket, error) {
	t := &Ticket{budget: b, name: network, units: n}
	if err := b.take(ctx, t, false); err != nil {
		return nil, err
	}
	return t, nil
}

// Try is like Take but does not wait. It first evicts what a waiter could have evicted, and succeeds only
// if these tickets are returned within the calls of their evict functions.
func (b *Budget) Try(network string, n int64) (*Ticket, bool) {
	t := &Ticket{budget: b, name: network, units: n}
	if n < 0 || n > b.room(false) {
		return nil, false
	}
	b.mu.Lock()
	one := b.networks[network]
	over := b.over(one, n)
	if over == 0 && b.grantNow(t, false) {
		b.mu.Unlock()
		return t, true
	}
	var evict []func()
	if over == 0 && b.turns.Len() == 0 {
		evict = b.makeRoom(one, n, b.room(false))
	}
	for over > 0 && one.blocked.Len() > 0 {
		first := one.blocked.Front().Value.(*Ticket)
		over -= first.units
		evict = append(evict, b.evict(first))
	}
	b.mu.Unlock()
	run(evict)
	b.mu.Lock()
	defer b.mu.Unlock()
	return t, len(evict) > 0 && over <= 0 && b.grantNow(t, false)
}

// over returns by how many units a network (nil: it holds nothing) would exceed its bound with n more.
func (b *Budget) over(one *network, n int64) int64 {
	if !b.Bound || one == nil || one.name == "" {
		return 0
	}
	most := b.Size / 2
	if b.used >= b.Size/4*3 {
		most = min(most, b.share())
	}
	return max(0, one.held-one.leaving+n-max(1, most))
}

func (b *Budget) share() int64 { return b.Size / b.Share }

// room returns how many units tickets may have together when one that grows, or a new one, is granted.
func (b *Budget) room(grows bool) int64 {
	if grows {
		return b.Size
	}
	return b.Size - b.Growth
}

// take waits for a ticket, which may be to enlarge another one.
func (b *Budget) take(ctx context.Context, t *Ticket, grows bool) error {
	if t.units < 0 || t.units > b.room(grows) {
		return ErrNever
	}
	b.mu.Lock()
	if b.grantNow(t, grows) {
		b.mu.Unlock()
		return nil
	}
	w := &waiter{ticket: t, grows: grows, ready: make(chan struct{})}
	b.of(t.name).enqueue(w)
	if one := b.networks[t.name]; one.turn == nil {
		one.turn = b.turns.PushBack(one)
	}
	b.unlock()
	return b.wait(ctx, w)
}

func (one *network) enqueue(w *waiter) {
	e := one.waiters.Front()
	for e != nil && (!w.grows || e.Value.(*waiter).grows) {
		e = e.Next()
	}
	if e == nil {
		w.element = one.waiters.PushBack(w)
	} else {
		w.element = one.waiters.InsertBefore(w, e)
	}
}

func (b *Budget) wait(ctx context.Context, w *waiter) error {
	var full <-chan time.Time
	if b.Wait > 0 {
		timer := time.NewTimer(b.Wait)
		defer timer.Stop()
		full = timer.C
	}
	again := time.NewTicker(b.Patience) // time alone makes tickets evictable
	defer again.Stop()
	err := error(nil)
	for err == nil {
		select {
		case <-w.ready:
			return nil
		case <-again.C:
			b.mu.Lock()
			b.unlock()
		case <-full:
			err = ErrFull
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.unlock()
	if w.element == nil { // granted meanwhile
		return nil
	}
	one := b.networks[w.ticket.name]
	b.leave(one, w)
	b.forget(one)
	return err
}

// next returns the waiter that is served next. Some network MUST wait.
func (b *Budget) next() *waiter {
	first := func(e *list.Element) *waiter { return e.Value.(*network).waiters.Front().Value.(*waiter) }
	for e := b.turns.Front(); e != nil; e = e.Next() {
		if w := first(e); w.grows {
			return w
		}
	}
	for e := b.turns.Front(); e != nil; e = e.Next() {
		if one := e.Value.(*network); one.held == 0 || one.held+first(e).ticket.units <= b.share() {
			return first(e)
		}
	}
	return first(b.turns.Front())
}

// leave removes a waiter. If its network has more, the network goes to the end of the round.
func (b *Budget) leave(one *network, w *waiter) {
	one.waiters.Remove(w.element)
	w.element = nil
	if one.waiters.Len() > 0 {
		b.turns.MoveToBack(one.turn)
		return
	}
	b.turns.Remove(one.turn)
	one.turn = nil
}

// unlock grants what fits, unlocks mu, and calls the functions of the tickets that it evicts.
func (b *Budget) unlock() {
	var evict []func()
	for b.turns.Len() > 0 {
		w := b.next()
		one := b.networks[w.ticket.name]
		if room := b.room(w.grows); b.used+w.ticket.units > room {
			evict = b.makeRoom(one, w.ticket.units, room)
			break
		}
		b.leave(one, w)
		b.grant(w.ticket)
		close(w.ready)
	}
	b.mu.Unlock()
	run(evict)
}

// grantNow grants a ticket if it fits and nobody waits who is served before.
func (b *Budget) grantNow(t *Ticket, grows bool) bool {
	if b.turns.Len() > 0 && (!grows || b.next().grows) || b.used+t.units > b.room(grows) {
		return false
	}
	b.grant(t)
	return true
}

func (b *Budget) grant(t *Ticket) {
	t.network, t.evicted = b.of(t.name), false
	t.network.tickets++
	b.add(t.network, t.units)
	if b.Lease {
		b.block(t, t.Return)
	}
}

func (b *Budget) add(one *network, n int64) {
	b.used += n
	if one.held += n; one.index >= 0 {
		heap.Fix(&b.blocking, one.index)
	}
}

func (b *Budget) waitedFor() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.turns.Len() > 0
}

func (b *Budget) of(name string) *network {
	one := b.networks[name]
	if one == nil {
		one = &network{name: name, index: -1}
		b.networks[name] = one
	}
	return one
}

func (b *Budget) forget(one *network) {
	if one.tickets == 0 && one.turn == nil {
		delete(b.networks, one.name)
	}
}

// Held returns the units of all tickets, and how many networks hold or wait for them.
func (b *Budget) Held() (units int64, networks int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, len(b.networks)
}
