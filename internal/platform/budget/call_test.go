package budget

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

func smallProcess() *Process {
	p := newProcess([2]int64{MaxSmall, MaxSmall}, 0, 1, wait)
	p.large = New(Options{Size: 2 << 20, Wait: wait})
	p.ones[Lookup] = New(Options{Size: 1, Wait: wait})
	return p
}

func (p *Process) empty(t *testing.T) {
	t.Helper()
	for _, b := range append(p.ones[:], p.small[0], p.small[1], p.large, p.growth, p.turns[0], p.turns[1], p.long[0], p.long[1]) {
		b.empty(t)
	}
}

func TestCallHoldsWhatItNeeds(t *testing.T) {
	p := smallProcess()
	ctx, c := p.Begin(t.Context(), "a")
	if From(ctx) != c {
		t.Error("the context has another call")
	}
	c.Party()
	for _, step := range []struct {
		take         func() error
		party, large int64
	}{
		{func() error { return c.Hold(ctx, SmallCall) }, SmallCall, 0},
		{func() error { return c.Hold(ctx, 100) }, SmallCall, 0},
		{func() error { return c.Parse(ctx, 1000, 10_000) }, SmallCall + 11_000, 0},
		{func() error { return c.Hold(ctx, 500<<10) }, 0, 500 << 10},
		{func() error { c.Shrink(200 << 10); return nil }, 0, 200 << 10},
		{func() error { return c.Parse(ctx, 150<<10, 1<<20) }, 0, SmallCall + 150<<10 + 1<<20},
	} {
		if c.Large() != (p.large.Held() > 0) {
			t.Errorf("Large is %t", c.Large())
		}
		if err := step.take(); err != nil {
			t.Fatal(err)
		}
		if party, large := p.small[1].Held(), p.large.Held(); party != step.party || large != step.large {
			t.Errorf("holds %d and %d bytes, want %d and %d", party, large, step.party, step.large)
		}
	}
	if p.long[1].Held() != 1 {
		t.Error("a large body is parsed without a turn")
	}
	if err := c.Hold(ctx, Largest+1); !problem.Is(err, problem.Overloaded) {
		t.Errorf("more than there is: %v, want OVERLOADED", err)
	}
	c.Rest()
	if p.long[1].Held() != 0 {
		t.Error("the call has a turn while it answers")
	}
	c.End()
	c.End()
	if err := c.Hold(ctx, 1); err != nil || p.small[1].Held() != 0 {
		t.Errorf("Hold after End: %v, %d bytes", err, p.small[1].Held())
	}
	p.empty(t)
}

// A large body whose tree does not fit waits for bodies that do not come.
func TestALargeBodyGrowsBesideStalledOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallProcess()
		for range 10 {
			ctx, stalled := p.Begin(t.Context(), "many")
			if err := stalled.Hold(ctx, 180<<10); err != nil {
				t.Fatal(err)
			}
			stalled.Blocked(func() { go stalled.End() })
		}
		ctx, c := p.Begin(t.Context(), "one")
		if err := errors.Join(c.Hold(ctx, 150<<10), c.Long(ctx), c.Parse(ctx, 120<<10, 600<<10)); err != nil {
			t.Errorf("a body of 120 KiB beside stalled ones: %v", err)
		}
		if p.long[0].Held() != 1 {
			t.Error("the call has lost its turn")
		}
		c.End()
	})
}

// Calls that hold all and need more get it one after the other, each network in its turn, although a network
// always wants more new tickets.
func TestCallsGrowInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallProcess()
		var all sync.WaitGroup
		grow := func(network string, most time.Duration) {
			ctx, c := p.Begin(t.Context(), network)
			if err := c.Hold(ctx, 250<<10); err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				defer c.End()
				began := time.Now()
				if err := c.Hold(ctx, 1<<20); err != nil || time.Since(began) > most {
					t.Errorf("a call of %q grows: %v after %v, want at most %v", network, err, time.Since(began), most)
				}
				if err := errors.Join(c.Hold(ctx, Largest), c.Hold(ctx, 300<<10)); err != nil || !c.Large() {
					t.Errorf("a call that may grow does: %v", err)
				}
				if err := c.Hold(ctx, Largest+1); !problem.Is(err, problem.Overloaded) {
					t.Errorf("over Largest: %v, want OVERLOADED", err)
				}
				time.Sleep(time.Second)
			})
		}
		for range 5 {
			grow("many", 6*time.Second)
		}
		synctest.Wait()
		grow("one", 2*time.Second)
		ctx, stop := context.WithTimeout(t.Context(), 6*time.Second)
		defer stop()
		for range 4 {
			all.Go(func() {
				for ctx.Err() == nil {
					if ticket, err := p.large.Take(ctx, "greedy", 500<<10); err == nil {
						time.Sleep(100 * time.Millisecond)
						ticket.Return()
					}
				}
			})
		}
		all.Wait()
		p.empty(t)
	})
}

// A call whose client does not take its answer lets another one grow.
func TestABlockedCallLetsOthersGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallProcess()
		for i := range 2 {
			ctx, c := p.Begin(t.Context(), fmt.Sprint(i))
			began := time.Now()
			if err := errors.Join(c.Hold(ctx, 1<<20), c.Hold(ctx, 3<<20)); err != nil || time.Since(began) > 2*time.Second {
				t.Errorf("call %d: %v after %v", i, err, time.Since(began))
			}
			ended := false
			c.Blocked(func() { ended = true; go c.End() })
			if c.Shrink(2<<20 + 1); p.growth.Held() != 1 {
				t.Error("a call gives back what it still holds")
			}
			if i == 0 {
				continue
			}
			if c.Shrink(1 << 20); p.growth.Held() != 0 {
				t.Error("a call that holds no more than its ticket keeps the right to grow")
			}
			if !c.Busy() || ended {
				t.Error("the call in use was evicted")
			}
			c.End()
		}
		p.empty(t)
	})
}

// A call that gave back its small ticket for a large one, and got none, holds nothing.
func TestCallWithoutTheLargerTicketHoldsNothing(t *testing.T) {
	p := smallProcess()
	ctx, c := p.Begin(t.Context(), "a")
	if err := c.Hold(ctx, SmallCall); err != nil {
		t.Fatal(err)
	}
	if err := c.Hold(ctx, 1<<40); !problem.Is(err, problem.Overloaded) {
		t.Errorf("more than there is: %v, want OVERLOADED", err)
	}
	if err := c.Hold(ctx, SmallCall); err != nil || p.small[0].Held() != SmallCall {
		t.Errorf("a small ticket after that: %v, %d bytes, want %d", err, p.small[0].Held(), SmallCall)
	}
	c.End()
	p.empty(t)
}

// A party does not wait for the turns of strangers.
func TestPartiesDoNotWaitBehindStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallProcess()
		began := time.Now()
		ctx, stranger := p.Begin(t.Context(), "many")
		_, party := p.Begin(t.Context(), "one")
		party.Party()
		if err := errors.Join(stranger.Turn(ctx), party.Turn(ctx)); err != nil {
			t.Error(err)
		}
		if time.Since(began) != 0 {
			t.Errorf("a party waited %v for a turn beside a stranger", time.Since(began))
		}
		for _, c := range []*Call{stranger, party} {
			c.End()
		}
		p.empty(t)
	})
}

// A waiting call gives up its ticket when others need it, and gets another one to answer.
func TestAWaitKeepsWhatItsDealTakes(t *testing.T) {
	p := smallProcess()
	ctx, c := p.Begin(t.Context(), "")
	if err := c.Hold(ctx, 400<<10); err != nil {
		t.Fatal(err)
	}
	c.Wait(300<<10, func() {})
	if n := p.large.Held(); n != 300<<10 {
		t.Errorf("a wait of a deal of 300 KiB holds %d bytes", n)
	}
	c.End()
}

// Waits take nothing of what small calls need, while large calls leave room.
func TestWaitsLeaveTheRoomOfSmallCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallProcess()
		var all sync.WaitGroup
		for range 10 {
			ctx, c := p.Begin(t.Context(), "many")
			if err := c.Hold(ctx, MaxSmall); err != nil {
				t.Fatal(err)
			}
			resume := c.Wait(0, func() {})
			if small, large := p.Held(); small != 0 || large == 0 {
				t.Errorf("a wait holds %d and %d bytes, want nothing small", small, large)
			}
			all.Go(func() {
				time.Sleep(time.Second)
				if err := resume(ctx); err != nil || p.small[0].Held() == 0 {
					t.Errorf("after the wait: %v, want a small ticket", err)
				}
				c.End()
			})
		}
		all.Wait()
		p.empty(t)
	})
}

func TestWaitingCallsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallProcess()
		p.large = New(Options{}) // holds no waits
		var waiting []func(context.Context) error
		var calls []*Call
		woken := make(chan int, 2)
		for i := range 2 {
			ctx, c := p.Begin(t.Context(), "many")
			if err := c.Hold(ctx, SmallCall); err != nil {
				t.Fatal(err)
			}
			calls = append(calls, c)
			waiting = append(waiting, c.Wait(0, func() { woken <- i }))
		}
		ctx, c := p.Begin(t.Context(), "one")
		var all sync.WaitGroup
		all.Go(func() {
			if err := c.Hold(ctx, SmallCall); err != nil {
				t.Errorf("a call beside waiting ones: %v", err)
			}
			c.End()
		})
		first := <-woken
		if err := waiting[first](t.Context()); err != nil {
			t.Errorf("the call that made room: %v", err)
		}
		all.Wait()
		for i, resume := range waiting {
			if i != first {
				if err := resume(t.Context()); err != nil {
					t.Error(err)
				}
			}
			calls[i].End()
		}
		p.empty(t)
	})
}

func TestTurnsAndLookupsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallProcess()
		ctx, c := p.Begin(t.Context(), "a")
		done, err := c.One(ctx, Lookup)
		if err := errors.Join(err, c.Long(ctx), c.Long(ctx)); err != nil {
			t.Fatal(err)
		}
		_, other := p.Begin(t.Context(), "b")
		began := time.Now()
		if _, err := other.One(ctx, Lookup); !problem.Is(err, problem.Overloaded) {
			t.Errorf("a second lookup: %v, want OVERLOADED", err)
		}
		if err := other.Long(ctx); !problem.Is(err, problem.Overloaded) || time.Since(began) != 3*wait {
			t.Errorf("a second turn: %v after %v, want OVERLOADED after %v", err, time.Since(began), 3*wait)
		}
		_, party := p.Begin(t.Context(), "b")
		party.Party()
		if err := party.Long(ctx); err != nil {
			t.Errorf("a party's turn beside a stranger's: %v", err)
		}
		var all sync.WaitGroup
		var had []string
		computes := func(name string, call *Call) {
			all.Go(func() {
				if err := call.Long(ctx); err != nil {
					t.Error(err)
				}
				had = append(had, name)
				call.End()
			})
			synctest.Wait()
			if err := c.Yield(ctx); err != nil {
				t.Error(err)
			}
		}
		_, own := p.Begin(t.Context(), "a")
		if computes("own", own); len(had) > 0 {
			t.Errorf("%v had a turn that was yielded while no other network waited", had)
		}
		computes("other", other)
		all.Wait()
		if len(had) != 2 {
			t.Errorf("%v had a turn, want both networks", had)
		}
		done()
		for _, call := range []*Call{c, party} {
			call.Rest()
			call.End()
		}
		p.empty(t)
	})
}

func TestProcessNeedsMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for limit, want := range map[int64]bool{math.MaxInt64: true, 540 << 20: true, 300 << 20: false} {
		debug.SetMemoryLimit(limit)
		if p, err := NewProcess(8192); (err == nil) != want || want && p.small[0].Size+p.small[1].Size+p.large.Size+reserve(p.large.Size) > limit/2 {
			t.Errorf("a limit of %d MiB: %v, want it enough: %t", limit>>20, err, want)
		}
	}
}

// The runbook says what a replica with the chart's limits holds. package memlimit sets 90 % of them.
func TestRunbookSaysWhatAReplicaHolds(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	text, err := os.ReadFile("../../../charts/fairpact/runbooks/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	debug.SetMemoryLimit(1 << 30 / 10 * 9)
	api, err := NewProcess(8192)
	if err != nil {
		t.Fatal(err)
	}
	debug.SetMemoryLimit(512 << 20 / 10 * 9)
	worker, err := NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		fmt.Sprintf("| shared memory of large work | %d MiB |", api.large.Size>>20),
		fmt.Sprintf("| for one call that already holds some and needs more | %d MiB |", reserve(api.large.Size+Largest)>>20),
		fmt.Sprintf("| memory reserved for small calls of parties | %d MiB |", api.small[1].Size>>20),
		fmt.Sprintf("| memory reserved for small calls of everyone else | %d MiB |", api.small[0].Size>>20),
		fmt.Sprintf("| shared memory of deadline-worker | %d MiB |", worker.large.Size>>20),
		fmt.Sprintf("| unread answers of log-server | %d MiB |", NewLog().large.Size>>20),
		fmt.Sprintf("| waiting calls over REST | %d |", min(8192, (api.small[1].Size+api.large.Size)/SmallCall)),
		fmt.Sprintf("| waiting calls over MCP | %d |", (api.small[1].Size+api.large.Size)/MaxSmall),
	} {
		if !strings.Contains(string(text), row) {
			t.Errorf("the runbook lacks %q", row)
		}
	}
}

func TestCallWithoutLimits(t *testing.T) {
	ctx, c := (*Process)(nil).Begin(t.Context(), "a")
	c.Party()
	c.Shrink(1)
	c.Rest()
	c.Blocked(nil)
	done, err := From(ctx).One(ctx, Lookup)
	if err := errors.Join(err, c.Hold(ctx, 1<<40), c.Parse(ctx, 1<<40, 1), c.Long(ctx), c.Yield(ctx), c.Wait(0, nil)(ctx)); err != nil || !c.Busy() || c.HasTurn() {
		t.Error(err)
	}
	done()
	c.End()
}

func BenchmarkSmallCall(b *testing.B) {
	p, err := NewProcess(100)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		ctx, c := p.Begin(b.Context(), "192.0.2.1")
		c.Party()
		_ = From(ctx).Parse(ctx, 200, 1000)
		_ = c.Hold(ctx, SmallCall)
		c.Shrink(SmallCall)
		c.End()
	}
}
