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
	return &Process{
		memory: New(Options{Party: MaxSmall, Other: MaxSmall, Work: 1 << 20, Shared: 1 << 20, Wait: wait}),
		turns:  New(Options{Party: 1, Other: 1, Wait: wait}), lookups: New(Options{Other: 1, Wait: wait}),
	}
}

func (p *Process) empty(t *testing.T) {
	t.Helper()
	for _, b := range []*Budget{p.memory, p.turns, p.lookups} {
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
		take        func() error
		lane        Lane
		party, want int64
	}{
		{func() error { return c.Hold(ctx, SmallCall) }, Party, SmallCall, 0},
		{func() error { return c.Hold(ctx, 100) }, Party, SmallCall, 0},
		{func() error { return c.Parse(ctx, 1000, 10_000) }, Party, SmallCall + 11_000, 0},
		{func() error { return c.Hold(ctx, 500<<10) }, Large, 0, 500 << 10},
		{func() error { c.Shrink(200 << 10); return nil }, Large, 0, 200 << 10},
		{func() error { return c.Parse(ctx, 150<<10, 1<<20) }, Large, 0, 200 << 10},
	} {
		if err := step.take(); err != nil {
			t.Fatal(err)
		}
		if party, large := p.Held(Party), p.Held(Large); party != step.party || large != step.want {
			t.Errorf("holds %d and %d bytes, want %d and %d", party, large, step.party, step.want)
		}
	}
	if units, _ := p.turns.Held(Party); p.Held(Work) != 1<<20 || units != 1 {
		t.Errorf("a large body holds %d bytes of Work and %d turns, want %d and 1", p.Held(Work), units, 1<<20)
	}
	if err := c.Hold(ctx, 2<<20); !problem.Is(err, problem.Overloaded) {
		t.Errorf("more than the lane: %v, want OVERLOADED", err)
	}
	c.Answer()
	if units, _ := p.turns.Held(Party); p.Held(Work) != 0 || units != 0 {
		t.Error("the call computes while it answers")
	}
	c.End()
	c.End()
	if err := c.Hold(ctx, 1); err != nil || p.Held(Party) != 0 {
		t.Errorf("Hold after End: %v, %d bytes", err, p.Held(Party))
	}
	p.empty(t)
}

// A call that gave back its small ticket for a large one, and got none, holds nothing.
func TestCallWithoutTheLargerTicketHoldsNothing(t *testing.T) {
	p := smallProcess()
	ctx, c := p.Begin(t.Context(), "a")
	if err := c.Hold(ctx, SmallCall); err != nil {
		t.Fatal(err)
	}
	if err := c.Hold(ctx, 1<<40); !problem.Is(err, problem.Overloaded) {
		t.Errorf("more than the lane: %v, want OVERLOADED", err)
	}
	if err := c.Hold(ctx, SmallCall); err != nil || p.Held(Other) != SmallCall {
		t.Errorf("a small ticket after that: %v, %d bytes, want %d", err, p.Held(Other), SmallCall)
	}
	c.End()
	p.empty(t)
}

// A waiting call gives up its ticket when others need it, and gets another one to answer.
func TestAWaitKeepsWhatItsDealTakes(t *testing.T) {
	p := smallProcess()
	ctx, c := p.Begin(t.Context(), "")
	if err := c.Hold(ctx, 400<<10); err != nil {
		t.Fatal(err)
	}
	c.Wait(300<<10, func() {})
	if n := p.Held(Large); n != 300<<10 {
		t.Errorf("a wait of a deal of 300 KiB holds %d bytes", n)
	}
	c.End()
}

func TestWaitingCallsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallProcess()
		p.memory.Shared = 0
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
		done, err := c.Lookup(ctx)
		if err := errors.Join(err, c.Turn(ctx), c.Turn(ctx)); err != nil {
			t.Fatal(err)
		}
		_, other := p.Begin(t.Context(), "b")
		began := time.Now()
		if _, err := other.Lookup(ctx); !problem.Is(err, problem.Overloaded) {
			t.Errorf("a second lookup: %v, want OVERLOADED", err)
		}
		if err := other.Turn(ctx); !problem.Is(err, problem.Overloaded) || time.Since(began) != 2*wait {
			t.Errorf("a second turn: %v after %v, want OVERLOADED after %v", err, time.Since(began), 2*wait)
		}
		_, party := p.Begin(t.Context(), "b")
		party.Party()
		if err := party.Turn(ctx); err != nil {
			t.Errorf("a party's turn beside a stranger's: %v", err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			if err := other.Turn(ctx); err != nil {
				t.Error(err)
			}
			other.End()
		})
		synctest.Wait()
		if err := c.Yield(ctx); err != nil {
			t.Error(err)
		}
		all.Wait()
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
		if p, err := NewProcess(8192); (err == nil) != want || want && p.memory.Total() > limit/2 {
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
		fmt.Sprintf("| shared memory of large work | %d MiB |", api.memory.Shared>>20),
		fmt.Sprintf("| memory reserved for small calls of parties | %d MiB |", api.memory.Party>>20),
		fmt.Sprintf("| memory reserved for small calls of everyone else | %d MiB |", api.memory.Other>>20),
		fmt.Sprintf("| memory of parsed bodies | %d MiB |", api.memory.Work>>20),
		fmt.Sprintf("| shared memory of deadline-worker | %d MiB |", worker.memory.Shared>>20),
		fmt.Sprintf("| unread answers of log-server | %d MiB |", NewLog().memory.Shared>>20),
		fmt.Sprintf("| waiting calls over REST | %d |", min(8192, (api.memory.Party+api.memory.Shared)/SmallCall)),
		fmt.Sprintf("| waiting calls over MCP | %d |", (api.memory.Party+api.memory.Shared)/MaxSmall),
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
	c.Answer()
	c.Blocked(nil)
	done, err := From(ctx).Lookup(ctx)
	if err := errors.Join(err, c.Hold(ctx, 1<<40), c.Compute(ctx, 1<<40), c.Turn(ctx), c.Yield(ctx), c.Wait(0, nil)(ctx)); err != nil || !c.Busy() {
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
		c.Answer()
		c.End()
	}
}
