// Package budget is the accountant of a process. It grants what calls hold (bytes of memory, turns
// at the CPU, or connections) before they hold it, shares it fairly between client networks, and
// takes it back from clients that keep the process waiting.
//
// Work takes a Ticket of n units for a network from a Budget. A process has one Budget for each kind of
// work, so that one kind cannot take what another needs (see Process).
//
// Order. A budget serves its waiters round robin by network, and those of one network first come,
// first served. While others wait, a network that holds more than its share is passed over.
//
// Growth. Tickets that grow wait for Options.Growth, which one of them at a time may use, or for what is
// not needed by new tickets of networks within their share. The one of the network that holds least
// comes first. Only Options.Wait bounds how long they wait: many networks could keep one waiting.
//
// Eviction. If a waiter does not fit, a ticket is evicted that is blocked on its client (see
// Ticket.Evictable): the one blocked longest of the network that holds most. A ticket of a network
// within its share is evicted only once it has been blocked for Options.Patience. An evicted ticket
// counts until its holder returns it.
//
// No waiter for a new ticket starves, provided that each holder returns its ticket after a bounded time:
// only tickets that grow pass the next waiter, each of which was granted before, and a network that was
// passed over holds nothing after that time. To avoid deadlocks, holders MUST wait for further tickets in
// one order: memory, one of a kind (Call.One), a turn at the CPU. Exceptions are PublicDeal, whose holders
// may wait for large memory and a LargeStatement, because nobody waits for it with either; and
// Ticket.Grow, because the ticket that uses Options.Growth never waits for others.
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
	// Wait is the longest time that Take waits, rounded up to a multiple of Patience. 0: until ctx ends.
	Wait time.Duration
	// Bound makes Try bound what one network holds, whether it can be evicted or not: to half of the
	// budget, and to 1/Share once that is three quarters full. The network "" has no bound.
	Bound bool
	// Growth is what only Ticket.Grow may take, and only for one ticket at a time. It should be what a
	// ticket can grow in all.
	Growth int64
	// Lease makes a ticket return by itself if others wait once it has been held for Patience.
	Lease bool
}

// Budget is safe for concurrent use.
type Budget struct {
	Options

	mu sync.Mutex
	// mu guards the fields below and those of networks, waiters and tickets. Invariants:
	//   - used is the sum of the tickets, and network.held that of the network's;
	//   - used-deep is at most Size-Growth, and deep at most Growth;
	//   - leaving is the sum of the evicted tickets that are not returned yet;
	//   - a network is in networks while it holds or waits for something, in turns while it waits, and in
	//     blocking while one of its tickets can be evicted.
	used, leaving int64
	networks      map[string]*network
	turns         list.List // of *network that wait for new tickets, next one first
	growing       list.List // of *waiter that enlarge tickets, longest first
	grown         *Ticket   // the last ticket that used Growth
	deep          int64     // sum of Ticket.deep
	blocked       list.List // of *Ticket that can be evicted, blocked longest first
	blocking      byHeld    // the networks of these tickets, as a heap with the largest first
}

type network struct {
	name    string
	held    int64
	leaving int64
	tickets int           // some may have 0 units
	waiters list.List     // of *waiter for new tickets, next one first
	turn    *list.Element // in Budget.turns; nil: the network does not wait
	blocked list.List     // of *Ticket, blocked longest first
	index   int           // in Budget.blocking; -1: none of its tickets can be evicted
}

type waiter struct {
	ticket  *Ticket
	grows   *Ticket       // that it enlarges; nil: it is a new one
	ready   chan struct{} // closed when the ticket is granted
	element *list.Element // in Budget.growing or network.waiters; nil: granted
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
	if err := b.take(ctx, t, nil); err != nil {
		return nil, err
	}
	return t, nil
}

// Try is like Take but does not wait. It first evicts what a waiter could have evicted, and succeeds only
// if these tickets are returned within the calls of their evict functions.
func (b *Budget) Try(network string, n int64) (*Ticket, bool) {
	t := &Ticket{budget: b, name: network, units: n}
	if n < 0 || n > b.Size-b.Growth {
		return nil, false
	}
	b.mu.Lock()
	one := b.networks[network]
	over := b.over(one, n)
	if over == 0 && b.grantNow(t, nil) {
		b.mu.Unlock()
		return t, true
	}
	var evict []func()
	if over == 0 && b.turns.Len() == 0 {
		evict = b.makeRoom(one, n)
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
	return t, len(evict) > 0 && over <= 0 && b.grantNow(t, nil)
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

func (b *Budget) fits(n int64, grows *Ticket) bool {
	return b.fromGrowth(n, grows) || b.used-b.deep+n <= b.Size-b.Growth
}

// take waits for a ticket, which may be to enlarge another one.
func (b *Budget) take(ctx context.Context, t, grows *Ticket) error {
	if t.units < 0 || grows == nil && t.units > b.Size-b.Growth {
		return ErrNever
	}
	b.mu.Lock()
	if b.grantNow(t, grows) {
		b.mu.Unlock()
		return nil
	}
	w := &waiter{ticket: t, grows: grows, ready: make(chan struct{})}
	if one := b.of(t.name); grows != nil {
		w.element = b.growing.PushBack(w)
	} else {
		w.element = one.waiters.PushBack(w)
		if one.turn == nil {
			one.turn = b.turns.PushBack(one)
		}
	}
	b.unlock()
	return b.wait(ctx, w)
}

func (b *Budget) wait(ctx context.Context, w *waiter) (err error) {
	began := time.Now()
	again := time.NewTicker(b.Patience) // time alone makes tickets evictable
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
	b.forget(b.of(w.ticket.name))
	return err
}

// next returns the waiter that is served next, or nil.
func (b *Budget) next() *waiter {
	grows := b.nextGrowing()
	if grows != nil && b.fromGrowth(grows.ticket.units, grows.grows) {
		return grows
	}
	first := func(e *list.Element) *waiter { return e.Value.(*network).waiters.Front().Value.(*waiter) }
	for e := b.turns.Front(); e != nil; e = e.Next() {
		if one := e.Value.(*network); one.held == 0 || one.held+first(e).ticket.units <= b.share() {
			return first(e)
		}
	}
	if grows != nil || b.turns.Len() == 0 {
		return grows
	}
	return first(b.turns.Front())
}

// leave removes a waiter. If its network has more, the network goes to the end of the round.
func (b *Budget) leave(w *waiter) {
	one, element := b.networks[w.ticket.name], w.element
	w.element = nil
	if w.grows != nil {
		b.growing.Remove(element)
		return
	}
	one.waiters.Remove(element)
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
	for w := b.next(); w != nil; w = b.next() {
		if !b.fits(w.ticket.units, w.grows) {
			evict = b.makeRoom(b.networks[w.ticket.name], w.ticket.units)
			break
		}
		b.leave(w)
		b.grant(w.ticket, w.grows)
		close(w.ready)
	}
	b.mu.Unlock()
	run(evict)
}

// grantNow grants a ticket if it fits and nobody waits who is served before.
func (b *Budget) grantNow(t, grows *Ticket) bool {
	waits := b.turns.Len() > 0 && !b.fromGrowth(t.units, grows) || grows != nil && grows != b.grown && b.growing.Len() > 0
	if waits || !b.fits(t.units, grows) {
		return false
	}
	b.grant(t, grows)
	return true
}

func (b *Budget) grant(t, grows *Ticket) {
	if b.fromGrowth(t.units, grows) {
		b.grown, t.deep = grows, t.units
		b.deep += t.deep
	}
	t.network = b.of(t.name)
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

// Held returns the units of all tickets.
func (b *Budget) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
