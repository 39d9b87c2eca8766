package budget

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var small = Options{Party: 10, Other: 10, Work: 20, Shared: 40}

// check checks the invariants of Budget.mu.
func (b *Budget) check() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var used, overflow int64
	for i := range b.lanes {
		l := &b.lanes[i]
		var held, leaving int64
		turns, blocked, blocking := 0, 0, 0
		for name, one := range l.networks {
			held += one.held
			leaving += one.leaving
			blocked += one.blocked.Len()
			if one.name != name || one.held < 0 || one.leaving < 0 || one.leaving > one.held || (one.turn != nil) != (one.waiters.Len() > 0) || (one.index >= 0) != (one.blocked.Len() > 0) {
				return fmt.Errorf("lane %d: network %+v", i, one)
			}
			if one.turn != nil {
				turns++
			}
			if one.index >= 0 {
				blocking++
			}
		}
		if held != l.used || leaving != l.leaving || turns != l.turns.Len() || blocked != l.blocked.Len() || blocking != len(l.blocking) {
			return fmt.Errorf("lane %d: used %d, leaving %d, turns %d, blocked %d and %d networks; its networks have %d, %d, %d, %d and %d", i, l.used, l.leaving, l.turns.Len(), l.blocked.Len(), len(l.blocking), held, leaving, turns, blocked, blocking)
		}
		for j, one := range l.blocking {
			if j > 0 && l.blocking.Less(j, (j-1)/2) || one.index != j {
				return fmt.Errorf("lane %d: the heap is not in order at %d", i, j)
			}
		}
		if l.turns.Len() > 0 && b.fits(l, l.next().waiters.Front().Value.(*waiter).ticket.units) {
			return fmt.Errorf("lane %d: a ticket that fits is waited for", i)
		}
		used += l.used
		overflow += max(0, l.used-l.part)
	}
	if overflow != b.overflow || overflow > b.Shared || used > b.Total() {
		return fmt.Errorf("%d units are used, %d of them shared (counted %d); want at most %d and %d", used, overflow, b.overflow, b.Total(), b.Shared)
	}
	return nil
}

func (b *Budget) empty(t *testing.T) {
	t.Helper()
	for lane := range lanes {
		if units, networks := b.Held(lane); units != 0 || networks != 0 {
			t.Errorf("lane %d: %d units of %d networks are counted at the end, want none", lane, units, networks)
		}
	}
	if err := b.check(); err != nil {
		t.Error(err)
	}
}

// Each byte pair of ops is one step: a taker begins, gives up, or time passes. A taker does with its
// ticket what its bytes say, and returns it after a bounded time. The invariants hold after each
// step, and each taker that does not give up gets its ticket.
func FuzzTickets(f *testing.F) {
	for seed := range uint64(40) {
		ops := make([]byte, 240)
		source := rand.NewChaCha8([32]byte{byte(seed)})
		_, _ = source.Read(ops)
		f.Add(ops)
	}
	f.Fuzz(func(t *testing.T, ops []byte) {
		synctest.Test(t, func(t *testing.T) {
			b := New(small)
			ctx, giveUp := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for i := 0; i+2 < len(ops) && i < 600; i += 3 {
				what, who, n := ops[i], ops[i+1], ops[i+2]
				switch {
				case what < 40:
					time.Sleep(time.Duration(n) * 10 * time.Millisecond)
				case what < 50:
					giveUp()
					ctx, giveUp = context.WithCancel(t.Context())
				default:
					taker := ctx
					if who&1 == 0 {
						taker = t.Context() // does not give up
					}
					all.Go(func() { hold(t, taker, b, what, who, n) })
				}
				synctest.Wait()
				if err := b.check(); err != nil {
					t.Fatalf("step %d: %v", i/3, err)
				}
			}
			all.Wait()
			giveUp()
			b.empty(t)
		})
	})
}

func hold(t *testing.T, ctx context.Context, b *Budget, what, who, n byte) {
	lane := Lane(what % byte(lanes))
	units := int64(n) % (b.lanes[lane].most + 1)
	network := fmt.Sprint(who % 5)
	began := time.Now()
	ticket, err := b.Take(ctx, lane, network, units)
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("%d units in lane %d: %v, want a ticket", units, lane, err)
		}
		return
	}
	// 200 takers at most, each of which holds its ticket for at most 2.55 s.
	if waited := time.Since(began); waited > 10*time.Minute {
		t.Errorf("%d units in lane %d: waited %v", units, lane, waited)
	}
	defer ticket.Return()
	pause := time.Duration(who) * 10 * time.Millisecond
	switch n % 4 {
	case 0:
		time.Sleep(pause / 2)
		ticket.Shrink(units / 2)
		time.Sleep(pause / 2)
		ticket.Grow(units)
	case 1:
		evicted := make(chan struct{})
		if !ticket.Evictable(func() { close(evicted) }) {
			t.Error("a new ticket is evicted")
		}
		if n&64 > 0 {
			ticket.Shrink(units / 3)
		}
		select {
		case <-time.After(pause):
			if !ticket.Busy() {
				<-evicted
			}
		case <-evicted:
			time.Sleep(pause / 8)
			if ticket.Busy() || ticket.Evictable(nil) || ticket.Grow(units+1) {
				t.Error("an evicted ticket is still used")
			}
		}
		ticket.Shrink(0)
	case 2:
		time.Sleep(pause / 2)
		if err := ticket.Yield(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("Yield: %v", err)
		}
		time.Sleep(pause / 2)
	default:
		time.Sleep(pause)
		ticket.Return()
	}
}

// Attackers of many networks hold all lanes, each ticket for a tenth of a second, and take new tickets at
// once. The largest ticket of each lane is granted to a newcomer all the same.
func TestNobodyStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(small)
		ctx, stop := context.WithCancel(t.Context())
		var attackers sync.WaitGroup
		for i := range 200 {
			attackers.Go(func() {
				for ctx.Err() == nil {
					lane := Lane(i % int(lanes))
					if ticket, err := b.Take(ctx, lane, fmt.Sprint("attacker ", i%20), 1+int64(i)%b.lanes[lane].most); err == nil {
						time.Sleep(100 * time.Millisecond)
						ticket.Return()
					}
				}
			})
		}
		defer attackers.Wait()
		defer stop()
		time.Sleep(time.Second)
		for lane := range lanes {
			for _, units := range []int64{1, b.lanes[lane].most} {
				began := time.Now()
				patient, cancel := context.WithTimeout(ctx, time.Minute)
				ticket, err := b.Take(patient, lane, "newcomer", units)
				cancel()
				if err != nil {
					t.Fatalf("%d units in lane %d: %v, want a ticket", units, lane, err)
				}
				ticket.Return()
				// Each of the 20 networks is served at most once before.
				if waited := time.Since(began); waited > 22*100*time.Millisecond {
					t.Errorf("%d units in lane %d: waited %v", units, lane, waited)
				}
				if err := b.check(); err != nil {
					t.Fatal(err)
				}
			}
		}
		stop()
		attackers.Wait()
		b.empty(t)
	})
}

// waiting takes a ticket in a goroutine, and appends the network's name to `order` once it is granted.
func (q *queue) waiting(lane Lane, network string, n int64) {
	q.all.Go(func() {
		ticket, err := q.b.Take(q.t.Context(), lane, network, n)
		if err != nil {
			q.t.Errorf("%s: %v", network, err)
			return
		}
		q.mu.Lock()
		q.order = append(q.order, network)
		q.mu.Unlock()
		time.Sleep(time.Second)
		ticket.Return()
	})
	synctest.Wait()
}

type queue struct {
	t     *testing.T
	b     *Budget
	all   sync.WaitGroup
	mu    sync.Mutex
	order []string
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(small)
		q := &queue{t: t, b: b}
		all, err := b.Take(t.Context(), Large, "other", 40)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			q.waiting(Large, "greedy", 30)
		}
		q.waiting(Large, "modest", 30)
		for range 3 { // not behind the large ones, and not into Shared
			q.waiting(Other, "small", 5)
		}
		if want := []string{"small", "small"}; !slices.Equal(q.order, want) {
			t.Errorf("served %v while the lane of large work is full, want %v", q.order, want)
		}
		if _, ok := b.Try(Other, "newcomer", 1); ok {
			t.Error("Try passes a waiter")
		}
		all.Return()
		q.all.Wait()
		large := slices.DeleteFunc(slices.Clone(q.order), func(network string) bool { return network == "small" })
		if want := []string{"greedy", "modest", "greedy", "greedy"}; !slices.Equal(large, want) || len(q.order) != 7 {
			t.Errorf("served %v, want %v and 3 small", q.order, want)
		}
		b.empty(t)
	})
}

func TestANetworkOverItsShareIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(small)
		q := &queue{t: t, b: b}
		var greedy []*Ticket
		for range 4 {
			ticket, _ := b.Try(Large, "greedy", 10)
			greedy = append(greedy, ticket)
		}
		q.waiting(Large, "greedy", 10)
		q.waiting(Large, "modest", 10)
		for i, want := range []string{"modest", "greedy"} {
			greedy[i].Return()
			synctest.Wait()
			if q.order[i] != want {
				t.Errorf("served %v, want %s next", q.order, want)
			}
		}
		greedy[2].Return()
		greedy[3].Return()
		q.all.Wait()
		b.empty(t)
	})
}

func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(small)
		var evicted []string
		blocked := func(network string, n int64) *Ticket {
			ticket, ok := b.Try(Large, network, n)
			if !ok {
				t.Fatalf("no ticket for %s", network)
			}
			ticket.Evictable(func() {
				evicted = append(evicted, network)
				ticket.Return()
			})
			return ticket
		}
		want := func(what string, names ...string) {
			t.Helper()
			if !slices.Equal(evicted, names) {
				t.Errorf("%s: evicted %v, want %v", what, evicted, names)
			}
			evicted = nil
		}
		within := blocked("within its share", 10)
		for range 3 {
			blocked("over its share", 10)
		}
		newcomer, ok := b.Try(Large, "newcomer", 5)
		if !ok {
			t.Error("the newcomer got no ticket")
		}
		want("at once", "over its share")
		if _, ok = b.Try(Large, "within its share", 10); ok {
			t.Error("a network that would hold as much got a ticket at once")
		}
		want("not for a network that would hold as much")
		time.Sleep(small.Patience + time.Second)
		within.Evictable(func() { within.Return() }) // its client has moved
		second, ok := b.Try(Large, "within its share", 10)
		if !ok {
			t.Error("no ticket, although others are blocked for long")
		}
		want("after Patience", "over its share")
		if !within.Busy() {
			t.Error("the ticket whose client moves was evicted")
		}
		third, err := b.Take(t.Context(), Large, "newcomer", 6)
		if err != nil {
			t.Error(err)
		}
		want("for a waiter", "over its share")
		for _, ticket := range []*Ticket{within, newcomer, second, third, third} {
			ticket.Return()
		}
		b.empty(t)
	})
}

// Waiters of other lanes that have overflowed into Shared make room for a large ticket.
func TestOverflowIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(small)
		var all sync.WaitGroup
		for i := range 25 {
			all.Go(func() {
				ticket, err := b.Take(t.Context(), Other, fmt.Sprint(i), 2)
				if err != nil {
					t.Error(err)
					return
				}
				woken := make(chan struct{})
				ticket.Evictable(func() { close(woken) })
				select {
				case <-woken:
				case <-time.After(time.Minute):
				}
				ticket.Return()
			})
		}
		synctest.Wait()
		began := time.Now()
		ticket, err := b.Take(t.Context(), Large, "large", 30)
		if waited := time.Since(began); err != nil || waited > 2*time.Second {
			t.Errorf("a large ticket: %v after %v, want it within 2 s", err, waited)
		}
		if units, _ := b.Held(Other); units != 20 {
			t.Errorf("%d units stay in the other lane, want 20: only what was needed is evicted", units)
		}
		ticket.Return()
		all.Wait()
		b.empty(t)
	})
}

func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := small
		o.Wait = 5 * time.Second
		b := New(o)
		if _, err := b.Take(t.Context(), Party, "a", 11); !errors.Is(err, ErrNever) {
			t.Errorf("a ticket larger than its lane: %v, want ErrNever", err)
		}
		ticket, _ := b.Try(Large, "a", 40)
		began := time.Now()
		if _, err := b.Take(t.Context(), Large, "b", 1); !errors.Is(err, ErrFull) || time.Since(began) != o.Wait {
			t.Errorf("%v after %v, want ErrFull after %v", err, time.Since(began), o.Wait)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Take(ctx, Large, "b", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the error of ctx", err)
		}
		ticket.Return()
		b.empty(t)
	})
}

func BenchmarkTakeAndReturn(b *testing.B) {
	budget := New(Options{Party: 1 << 24, Other: 1 << 24, Work: 1 << 24, Shared: 1 << 26})
	for _, others := range []int{0, 10_000} {
		for i := range others {
			if _, ok := budget.Try(Party, fmt.Sprint("network ", i), 16); !ok {
				b.Fatal("no ticket")
			}
		}
		b.Run(fmt.Sprint("beside ", others, " networks"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ticket, err := budget.Take(b.Context(), Party, "192.0.2.1", 16<<10)
				if err != nil {
					b.Fatal(err)
				}
				ticket.Return()
			}
		})
		b.Run(fmt.Sprint("from all cores, beside ", others, " networks"), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ticket, err := budget.Take(b.Context(), Party, "192.0.2.1", 16)
					if err != nil {
						b.Error(err)
						return
					}
					ticket.Return()
				}
			})
		})
	}
}

// A body that is read in four blocks.
func BenchmarkEvictable(b *testing.B) {
	budget := New(Options{Shared: 1 << 26})
	evict := func() {}
	b.ReportAllocs()
	for b.Loop() {
		ticket, err := budget.Take(b.Context(), Large, "192.0.2.1", 256<<10)
		if err != nil {
			b.Fatal(err)
		}
		for range 4 {
			ticket.Evictable(evict)
			ticket.Busy()
		}
		ticket.Return()
	}
}

// With Bound, a network holds half of a lane at most, and its share once the lane is three quarters full.
func TestTryBoundsANetwork(t *testing.T) {
	o := Options{Shared: 16, Share: 4, Bound: true}
	b := New(o)
	var all []*Ticket
	take := func(network string, want bool) *Ticket {
		t.Helper()
		ticket, ok := b.Try(Large, network, 1)
		if ok != want {
			t.Errorf("a ticket of %q: %v, want %v", network, ok, want)
		}
		if ok {
			all = append(all, ticket)
		}
		return ticket
	}
	var first *Ticket
	for i := range 8 {
		if one := take("a", true); i == 0 {
			first = one
		}
	}
	take("a", false)
	first.Evictable(first.Return)
	take("a", true) // replaces its own
	for range 4 {
		take("b", true)
	}
	take("b", false)
	for range 4 {
		take("", true)
	}
	take("c", false) // full, and nobody blocks
	for _, ticket := range all {
		ticket.Return()
	}
	for range 16 {
		take("", true)
	}
	for _, ticket := range all {
		ticket.Return()
	}
	b.empty(t)
}
