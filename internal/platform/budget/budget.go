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
// Eviction. If a waiter does not fit, a ticket is evicted that is blocked on its client (see
// Ticket.Evictable): the one blocked longest of the network that holds most. A ticket of a network
// within its share is evicted only once it has been blocked for longer than a client needs (patience).
// An evicted ticket counts until its holder returns it, but no longer for its network.
//
// No waiter starves, provided that it waits for long enough (Options.Wait) and that each holder returns its ticket
// after a bounded time: a network that was passed over holds nothing after that time. To avoid deadlocks, holders MUST wait for further
// tickets in one order: memory, memory to grow, one of a kind (Call.One), a turn at the CPU. The
// exception is PublicDeal, whose holders may wait for large memory and a LargeRead, because nobody
// waits for it with either.
package budget

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

var (
	// ErrNever is returned for a ticket that is larger than the budget.
	ErrNever = errors.New("budget: the ticket is larger than the budget")
	// ErrFull is returned after Options.Wait.
	ErrFull = errors.New("budget: waited too long for others to return their tickets")
)

// Options configures a Budget.
type Options struct {
	Size int64 // units
	// Wait is the longest time that Take waits, rounded up to seconds. 0: until ctx ends.
	Wait time.Duration
	// Bound, if not 0, is what one network may hold once the budget is three quarters full, whether
	// its tickets can be evicted or not. Before, it may hold half of the budget. The network "" has no
	// bound. Such a budget MUST be used with Try only: a waiter over its bound would stop the others.
	Bound int64
}

// Budget is safe for concurrent use.
type Budget struct {
	Options

	mu sync.Mutex
	// mu guards the fields below and those of networks and tickets. Invariants:
	//   - used is the sum of the tickets, leaving that of the evicted ones that are not returned yet,
	//     and network.held that of the network's others;
	//   - used is at most Size;
	//   - a network is in networks while it has tickets, and in turns while it waits for one.
	used, leaving int64
	networks      map[string]*network
	turns         list.List // of *network that wait, next one first
}

type network struct {
	name    string
	held    int64
	tickets int           // also those that it waits for; some may have 0 units
	waiters []*Ticket     // next one first
	turn    *list.Element // in Budget.turns; nil: the network does not wait
	blocked list.List     // of *Ticket that can be evicted, blocked longest first
}

// New returns an empty budget.
func New(o Options) *Budget {
	return &Budget{Options: o, networks: map[string]*network{}}
}

// Try is like Take but does not wait. It evicts what a waiter could have evicted, and succeeds only if
// these tickets are returned within the calls of their evict functions.
func (b *Budget) Try(network string, n int64) (*Ticket, bool) {
	t, err := b.Take(ended, network, n)
	return t, err == nil
}

// ended is a context with which Take does not wait.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// Take waits for a ticket of n units for a network. It returns ErrNever, ErrFull, or the error of ctx.
// The caller MUST call Return.
func (b *Budget) Take(ctx context.Context, network string, n int64) (*Ticket, error) {
	if n < 0 || n > b.Size {
		return nil, ErrNever
	}
	t := b.join(network, n)
	if t.ready == nil {
		return t, nil
	}
	began, again := time.Now(), time.NewTicker(time.Second) // time alone makes tickets evictable
	defer again.Stop()
	for err := error(nil); ; {
		select {
		case <-t.ready:
			return t, nil
		case <-again.C:
			b.mu.Lock()
			b.unlock()
			if b.Wait > 0 && time.Since(began) >= b.Wait {
				err = ErrFull
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil && b.leave(t) {
			return nil, err
		}
	}
}

// join grants a ticket, or lets it wait until ready is closed.
func (b *Budget) join(name string, n int64) *Ticket {
	b.mu.Lock()
	defer b.unlock()
	one := b.networks[name]
	if one == nil {
		one = &network{name: name}
		b.networks[name] = one
	}
	one.tickets++
	t := &Ticket{budget: b, network: one, wants: n}
	if b.turns.Len() == 0 && b.fits(t) {
		t.grant()
		return t
	}
	t.ready = make(chan struct{})
	one.waiters = append(one.waiters, t)
	if one.turn == nil {
		one.turn = b.turns.PushBack(one)
	}
	return t
}

// leave ends the wait for a ticket. It returns false if the ticket was granted meanwhile.
func (b *Budget) leave(t *Ticket) bool {
	b.mu.Lock()
	defer b.unlock()
	one := t.network
	i := slices.Index(one.waiters, t)
	if i < 0 {
		return false
	}
	b.served(one, i)
	t.end()
	return true
}

// served takes a waiter out of its network's queue.
func (b *Budget) served(one *network, i int) {
	one.waiters = slices.Delete(one.waiters, i, i+1)
	if len(one.waiters) == 0 {
		b.turns.Remove(one.turn)
		one.turn, one.waiters = nil, nil
	}
}

// unlock grants what fits, unlocks mu, and calls the functions of the tickets that it evicts.
func (b *Budget) unlock() {
	var evict []func()
	for next := b.next(); next != nil; next = b.next() {
		if b.fits(next) {
			b.turns.MoveToBack(next.network.turn)
			b.served(next.network, 0)
			next.grant()
			close(next.ready)
			continue
		}
		t := b.evictable(next)
		if t == nil {
			break
		}
		evict = append(evict, t.evict)
		t.unblock()
		t.state = evicted
		b.leaving += t.units
		t.network.held -= t.units
	}
	b.mu.Unlock()
	for _, f := range evict {
		f()
	}
}

// next returns the ticket that is granted next, or nil.
func (b *Budget) next() (next *Ticket) {
	for e := b.turns.Front(); e != nil; e = e.Next() {
		one := e.Value.(*network)
		first := one.waiters[0]
		if one.held == 0 || one.held+first.wants <= b.share() {
			return first
		}
		if next == nil {
			next = first
		}
	}
	return next
}

// share is what a network may hold while others wait.
func (b *Budget) share() int64 { return b.Size / 4 }

func (b *Budget) fits(t *Ticket) bool { return !b.over(t) && t.wants <= b.Size-b.used }

// over reports whether the network of a waiter would exceed its bound.
func (b *Budget) over(t *Ticket) bool {
	one, most := t.network, b.Size/2
	if b.used >= b.Size/4*3 {
		most = min(most, b.Bound)
	}
	return b.Bound > 0 && one.name != "" && one.held+t.wants > max(1, most)
}

// evictable returns the ticket to evict next for a waiter. It returns nil if there is none, or if the
// waiter fits once the evicted tickets are returned.
func (b *Budget) evictable(w *Ticket) *Ticket {
	over := b.over(w)
	if !over && w.wants <= b.Size-b.used+b.leaving {
		return nil
	}
	kept := b.share() // what a network keeps from others, for patience
	if b.Bound > 0 {  // connections cost nothing to open again: sixteen networks could else fill a port and stay young
		kept = 0
	}
	var best *Ticket
	for _, one := range b.networks {
		if one.blocked.Len() == 0 || over && one != w.network || best != nil && one.held <= best.network.held {
			continue
		}
		t := one.blocked.Front().Value.(*Ticket)
		if over || t.late() || one != w.network && one.held > max(kept, w.network.held+w.wants) {
			best = t
		}
	}
	return best
}

// waitedFor reports whether another network than that of a ticket waits.
func (b *Budget) waitedFor(t *Ticket) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.turns.Len() > 1 || b.turns.Len() == 1 && b.turns.Front().Value != t.network
}

// Held returns the units of all tickets.
func (b *Budget) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
