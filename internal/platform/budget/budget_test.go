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

var small = Options{Size: 40}

// check checks the invariants of Budget.mu.
func (b *Budget) check() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var held int64
	turns := 0
	for name, one := range b.networks {
		held += one.held
		if one.name != name || one.held < 0 || one.tickets <= 0 || (one.turn != nil) != (len(one.waiters) > 0) {
			return fmt.Errorf("network %+v", one)
		}
		if one.turn != nil {
			turns++
		}
	}
	if held+b.leaving != b.used || b.leaving < 0 || b.used > b.Size || turns != b.turns.Len() {
		return fmt.Errorf("used %d of %d, leaving %d, turns %d; its networks have %d and %d", b.used, b.Size, b.leaving, b.turns.Len(), held, turns)
	}
	if t := b.next(); t != nil && b.fits(t) {
		return errors.New("a ticket that fits is waited for")
	}
	return nil
}

func (b *Budget) empty(t *testing.T) {
	t.Helper()
	if err := b.check(); err != nil {
		t.Error(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used != 0 || len(b.networks) != 0 {
		t.Errorf("%d units of %d networks are counted at the end, want none", b.used, len(b.networks))
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
	units := int64(n) % (b.Size + 1)
	network := fmt.Sprint(who % 5)
	began := time.Now()
	// 200 takers at most, each of which holds its ticket for at most 4.55 s. Without a limit, a starving
	// taker would wait for ever in the time of the test.
	limited, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	ticket, err := b.Take(limited, network, units)
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("%d units: %v after %v, want a ticket", units, err, time.Since(began))
		}
		return
	}
	defer ticket.Return()
	pause := (time.Duration(who) + 1) * 10 * time.Millisecond
	switch (n / 4) % 5 {
	case 0:
		time.Sleep(pause / 2)
		if !ticket.Resize(units / 2) {
			t.Error("a ticket does not shrink")
		}
		time.Sleep(pause / 2)
		if ok := ticket.Resize(units); ok != (ticket.Units() == units) {
			t.Errorf("Resize: %v, and the ticket has %d of %d units", ok, ticket.Units(), units)
		}
	case 1:
		evicted := make(chan struct{})
		ticket.Evictable(func() { close(evicted) })
		if n&64 > 0 {
			ticket.Resize(units / 3)
		}
		select {
		case <-time.After(pause):
			if !ticket.Busy() {
				<-evicted
			}
		case <-evicted:
			time.Sleep(pause / 8)
			if ticket.Evictable(nil); ticket.Busy() || ticket.Resize(units+1) {
				t.Error("an evicted ticket is still used")
			}
		}
		ticket.Resize(0)
	case 2:
		time.Sleep(pause / 2)
		if b.waitedFor(ticket) {
			ticket.Return()
		}
		time.Sleep(pause / 2)
	case 3: // as when the call ends whose load another goroutine makes
		time.AfterFunc(pause/2, ticket.Return)
		time.Sleep(pause)
		if ticket.Resize(1) || ticket.Units() != 0 {
			t.Error("a returned ticket grows")
		}
	default:
		time.Sleep(pause)
		ticket.Return()
	}
}

// Attackers of many networks hold all, each ticket for a tenth of a second, and take new tickets at
// once. The largest ticket is granted to a newcomer all the same.
func TestNobodyStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(small)
		ctx, stop := context.WithCancel(t.Context())
		var attackers sync.WaitGroup
		for i := range 200 {
			attackers.Go(func() {
				for ctx.Err() == nil {
					if ticket, err := b.Take(ctx, fmt.Sprint("attacker ", i%20), 1+int64(i)%b.Size); err == nil {
						time.Sleep(100 * time.Millisecond)
						ticket.Return()
					}
				}
			})
		}
		defer attackers.Wait()
		defer stop()
		time.Sleep(time.Second)
		for _, units := range []int64{1, b.Size} {
			began := time.Now()
			patient, cancel := context.WithTimeout(ctx, time.Minute)
			ticket, err := b.Take(patient, "newcomer", units)
			cancel()
			if err != nil {
				t.Fatalf("%d units: %v, want a ticket", units, err)
			}
			ticket.Return()
			// Each of the 20 networks is served at most once before.
			if waited := time.Since(began); waited > 22*100*time.Millisecond {
				t.Errorf("%d units: waited %v", units, waited)
			}
			if err := b.check(); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		attackers.Wait()
		b.empty(t)
	})
}

// waiting takes a ticket in a goroutine, and appends the network's name to `order` once it is granted.
func (q *queue) waiting(network string, n int64) {
	q.all.Go(func() {
		ticket, err := q.b.Take(q.t.Context(), network, n)
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
		all, err := b.Take(t.Context(), "other", 40)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			q.waiting("greedy", 30)
		}
		q.waiting("modest", 30)
		if _, ok := b.Try("newcomer", 0); ok {
			t.Error("Try passes a waiter")
		}
		all.Return()
		q.all.Wait()
		if want := []string{"greedy", "modest", "greedy", "greedy"}; !slices.Equal(q.order, want) {
			t.Errorf("served %v, want %v", q.order, want)
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
			ticket, _ := b.Try("greedy", 10)
			greedy = append(greedy, ticket)
		}
		q.waiting("greedy", 10)
		q.waiting("modest", 10)
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
			ticket, ok := b.Try(network, n)
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
		newcomer, ok := b.Try("newcomer", 5)
		if !ok {
			t.Error("the newcomer got no ticket")
		}
		want("at once", "over its share")
		if _, ok = b.Try("within its share", 10); ok {
			t.Error("a network that would hold as much got a ticket at once")
		}
		want("not for a network that would hold as much")
		time.Sleep(patience + time.Second)
		within.Busy() // its client has moved
		within.Evictable(func() { within.Return() })
		second, ok := b.Try("within its share", 10)
		if !ok {
			t.Error("no ticket, although others are blocked for long")
		}
		want("after a second", "over its share")
		if !within.Busy() {
			t.Error("the ticket whose client moves was evicted")
		}
		third, err := b.Take(t.Context(), "newcomer", 6)
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

func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := small
		o.Wait = 5 * time.Second
		b := New(o)
		if _, err := b.Take(t.Context(), "a", 41); !errors.Is(err, ErrNever) {
			t.Errorf("a ticket larger than the budget: %v, want ErrNever", err)
		}
		ticket, _ := b.Try("a", 40)
		began := time.Now()
		if _, err := b.Take(t.Context(), "b", 1); !errors.Is(err, ErrFull) || time.Since(began) != o.Wait {
			t.Errorf("%v after %v, want ErrFull after %v", err, time.Since(began), o.Wait)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Take(ctx, "b", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the error of ctx", err)
		}
		ticket.Return()
		b.empty(t)
	})
}

func BenchmarkTakeAndReturn(b *testing.B) {
	budget := New(Options{Size: 1 << 26})
	for _, others := range []int{0, 10_000} {
		for i := range others {
			if _, ok := budget.Try(fmt.Sprint("network ", i), 16); !ok {
				b.Fatal("no ticket")
			}
		}
		b.Run(fmt.Sprint("beside ", others, " networks"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ticket, err := budget.Take(b.Context(), "192.0.2.1", 16<<10)
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
					ticket, err := budget.Take(b.Context(), "192.0.2.1", 16)
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

// With Bound, a network holds half of the budget at most, and its share once that is three quarters full.
func TestTryBoundsANetwork(t *testing.T) {
	o := Options{Size: 16, Bound: 4}
	b := New(o)
	var all []*Ticket
	take := func(network string, want bool) *Ticket {
		t.Helper()
		ticket, ok := b.Try(network, 1)
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

// Networks that together fill a port up to their shares, and replace their own connections within a second, do not keep another
// network out. Two networks of one connection each do not replace each other's.
func TestFullPortTakesANewNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Size: 64, Bound: 4})
		for i := range 64 {
			one, ok := b.Try(fmt.Sprint(i/4), 1)
			if !ok {
				t.Fatalf("connection %d does not fit", i)
			}
			one.Evictable(one.Return)
		}
		if _, ok := b.Try("new", 1); !ok {
			t.Error("sixteen networks of four connections keep a new network out")
		}
		small := New(Options{Size: 2, Bound: 1})
		for _, name := range []string{"a", "b"} {
			one, _ := small.Try(name, 1)
			one.Evictable(one.Return)
		}
		if _, ok := small.Try("c", 1); ok {
			t.Error("a new network replaces the only connection of another one")
		}
	})
}
