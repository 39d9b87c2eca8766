// Package budget is the accountant of a process. It grants what calls hold (bytes of memory, turns
// at the CPU, or connections) before they hold it, shares it fairly between client networks, and
// takes it back from clients that keep the process waiting.
//
// Work takes a Ticket of n units in a Lane for a network. Each lane except Large owns a part of the
// budget, so that one kind of work cannot take what is guaranteed to another. The rest, Shared,
// is for Large; the other lanes may overflow into it while no Large ticket is waited for.
//
// Order. A lane serves its waiters round robin by network, and those of one network first come,
// first served. While others wait, a network that holds more than its share of the lane is passed
// over. The lanes do not wait for each other, so small work never waits behind large work.
//
// Eviction. If a waiter does not fit, a ticket is evicted that is blocked on its client (see
// Ticket.Evictable): the one blocked longest of the network that holds most in the lane. A ticket
// of a network within its share is evicted only once it has been blocked for Options.Patience. An
// evicted ticket counts until its holder returns it.
//
// No waiter starves, provided that each holder returns its ticket after a bounded time. Nobody
// passes the next waiter of a lane. Its lane, without its overflow, is empty after that time, and
// a network that was passed over then holds nothing. The overflow of the other lanes shrinks while
// a Large ticket is waited for. To avoid deadlocks, a holder MUST NOT wait for a second ticket,
// except for one of Work, whose holders MUST NOT wait for anything but the CPU.
package budget

import (
	"container/heap"
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// Lane is a kind of work.
type Lane int

// The lanes.
const (
	Party Lane = iota // small calls with an invite token of the deal
	Other             // small calls of everyone else
	Work              // what a call holds while the process computes, for example a parsed document
	Large             // everything else
	lanes
)

var (
	// ErrNever is returned for a ticket that is larger than its lane.
	ErrNever = errors.New("budget: the ticket is larger than its lane")
	// ErrFull is returned after Options.Wait.
	ErrFull = errors.New("budget: waited too long for others to return their tickets")
)

// Options configures a Budget.
type Options struct {
	// Party, Other and Work are the parts of these lanes in units. A single ticket is at most as
	// large as its lane's part. A lane with the part 0 grants no tickets.
	Party, Other, Work int64
	// Shared is the part of Large. The others may overflow into it.
	Shared int64
	// Share divides a lane: while others wait, a network may hold 1/Share of it. 0 means 4.
	Share int64
	// Patience is how long a ticket of a network within its share may block on its client before it
	// can be evicted. 0 means a second.
	Patience time.Duration
	// Wait is the longest time that Take waits. 0: until ctx ends.
	Wait time.Duration
	// Bound makes Try bound what one network holds, whether it can be evicted or not: to half of a lane,
	// and to 1/Share once the lane is three quarters full. The network "" has no bound.
	Bound bool
}

// Total returns the units of all lanes together.
func (o Options) Total() int64 { return o.Party + o.Other + o.Work + o.Shared }

// Budget is safe for concurrent use.
type Budget struct {
	Options

	mu sync.Mutex
	// mu guards the fields below and those of lanes, networks and tickets. Invariants:
	//   - lane.used is the sum of the lane's tickets, and network.held that of the network's in the lane;
	//   - overflow is the sum of max(0, used-part) over all lanes, and at most Shared. So all tickets
	//     together are at most Total();
	//   - lane.leaving is the sum of the lane's evicted tickets that are not returned yet;
	//   - a network is in lane.networks while it holds or waits for something, in lane.turns while it
	//     waits, and in lane.blocking while one of its tickets can be evicted.
	lanes    [lanes]lane
	overflow int64
}

// New returns an empty budget.
func New(o Options) *Budget {
	if o.Share == 0 {
		o.Share = 4
	}
	if o.Patience == 0 {
		o.Patience = time.Second
	}
	b := &Budget{Options: o}
	for i, part := range [lanes]int64{o.Party, o.Other, o.Work, 0} {
		l := &b.lanes[i]
		l.part, l.most, l.share = part, part, (part+o.Shared)/o.Share
		l.networks = map[string]*network{}
	}
	b.lanes[Large].most = o.Shared
	return b
}

// Ticket is the right to hold some units until Return. Its methods are safe for concurrent use.
type Ticket struct {
	budget *Budget
	lane   Lane
	name   string

	// Budget.mu guards the fields below.
	network *network // nil: not granted, or returned
	units   int64
	evicted bool
	evict   func()
	since   time.Time        // blocked since
	blocked [2]*list.Element // in lane.blocked and network.blocked; nil: cannot be evicted
}

// Take waits for a ticket of n units for a network. It returns ErrNever, ErrFull, or the error of ctx.
// The caller MUST call Return.
func (b *Budget) Take(ctx context.Context, lane Lane, network string, n int64) (*Ticket, error) {
	t := &Ticket{budget: b, lane: lane, name: network, units: n}
	if err := b.take(ctx, t); err != nil {
		return nil, err
	}
	return t, nil
}

// Try is like Take but does not wait. It first evicts what a waiter could have evicted, and succeeds only
// if these tickets are returned within the calls of their evict functions.
func (b *Budget) Try(lane Lane, network string, n int64) (*Ticket, bool) {
	t := &Ticket{budget: b, lane: lane, name: network, units: n}
	if n < 0 || n > b.lanes[lane].most {
		return nil, false
	}
	b.mu.Lock()
	l := &b.lanes[lane]
	one := l.networks[network]
	over := b.over(l, one, n)
	if over == 0 && b.grantNow(t) {
		b.mu.Unlock()
		return t, true
	}
	var evict []func()
	switch {
	case over > 0:
		for over > 0 && one.blocked.Len() > 0 {
			first := one.blocked.Front().Value.(*Ticket)
			over -= first.units
			evict = append(evict, l.evictOne(first))
		}
		if over > 0 {
			b.mu.Unlock()
			run(evict)
			return nil, false
		}
	case l.turns.Len() == 0:
		evict = b.makeRoom(l, one, n)
	}
	b.mu.Unlock()
	run(evict)
	b.mu.Lock()
	defer b.mu.Unlock()
	return t, len(evict) > 0 && b.grantNow(t)
}

// over returns by how many units a network (nil: it holds nothing) would exceed its bound with n more.
func (b *Budget) over(l *lane, one *network, n int64) int64 {
	if !b.Bound || one == nil || one.name == "" {
		return 0
	}
	most := l.most / 2
	if l.used >= l.most/4*3 {
		most = min(most, l.share)
	}
	return max(0, one.held-one.leaving+n-max(1, most))
}

func (b *Budget) take(ctx context.Context, t *Ticket) error {
	l := &b.lanes[t.lane]
	if t.units < 0 || t.units > l.most {
		return ErrNever
	}
	b.mu.Lock()
	if b.grantNow(t) {
		b.mu.Unlock()
		return nil
	}
	w := &waiter{ticket: t, ready: make(chan struct{})}
	one := l.of(t.name)
	w.element = one.waiters.PushBack(w)
	if one.turn == nil {
		one.turn = l.turns.PushBack(one)
	}
	b.unlock()
	return b.wait(ctx, w)
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
	l, one := &b.lanes[w.ticket.lane], b.lanes[w.ticket.lane].networks[w.ticket.name]
	l.leave(one, w)
	l.forget(one)
	return err
}

// unlock grants what fits, unlocks mu, and calls the functions of the tickets that it evicts.
func (b *Budget) unlock() {
	var evict []func()
	for i := range b.lanes {
		l := &b.lanes[int(Large)-i] // Large first: the others may use only what it leaves
		for l.turns.Len() > 0 {
			one := l.next()
			w := one.waiters.Front().Value.(*waiter)
			if !b.fits(l, w.ticket.units) {
				evict = append(evict, b.makeRoom(l, one, w.ticket.units)...)
				break
			}
			l.leave(one, w)
			b.grant(w.ticket)
			close(w.ready)
		}
	}
	b.mu.Unlock()
	run(evict)
}

// lacking returns how many units must be returned before n units fit into the lane; 0: they fit.
func (b *Budget) lacking(l *lane, n int64) int64 {
	more := l.overflowOf(l.used+n) - l.overflowOf(l.used)
	if more > 0 && l.part > 0 && b.lanes[Large].turns.Len() > 0 {
		return l.overflowOf(l.used + n) // no further overflow while a Large ticket is waited for
	}
	return max(0, min(more, b.overflow+more-b.Shared))
}

func (b *Budget) fits(l *lane, n int64) bool { return b.lacking(l, n) == 0 }

// grantNow grants a ticket if it fits and nobody waits in its lane.
func (b *Budget) grantNow(t *Ticket) bool {
	l := &b.lanes[t.lane]
	if l.turns.Len() > 0 || !b.fits(l, t.units) {
		return false
	}
	b.grant(t)
	return true
}

func (b *Budget) grant(t *Ticket) {
	l := &b.lanes[t.lane]
	t.network, t.evicted = l.of(t.name), false
	t.network.tickets++
	b.add(l, t.network, t.units)
}

func (b *Budget) add(l *lane, one *network, n int64) {
	b.overflow += l.overflowOf(l.used+n) - l.overflowOf(l.used)
	l.used += n
	if one.held += n; one.index >= 0 {
		heap.Fix(&l.blocking, one.index)
	}
}

// Held returns the units of all tickets of a lane, and how many networks hold or wait for them.
func (b *Budget) Held(lane Lane) (units int64, networks int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lanes[lane].used, len(b.lanes[lane].networks)
}
