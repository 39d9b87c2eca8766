package budget

import (
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A large call leaves the part of the small calls of parties, even if that has room.
func TestLargeCallsTakeNothingFromSmallOnes(t *testing.T) {
	p := &Process{memory: New(Options{Party: 10 << 20, Other: MaxSmall, Work: 1, Shared: 10 << 20})}
	ctx, c := p.Begin(t.Context(), "a")
	c.Party()
	for _, n := range []int64{SmallCall, 5 << 20} {
		if err := c.Hold(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	small, _ := p.memory.Held(Party)
	if large, _ := p.memory.Held(Large); small != 0 || large != 5<<20 {
		t.Errorf("holds %d bytes of Party and %d of Large, want 0 and %d", small, large, 5<<20)
	}
	c.End()
	p.memory.empty(t)
}

// One call reads at a time, and a network with one read does not wait for all reads of another.
func TestNetworksTakeTurnsToRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Process{reads: newReads(0)}
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		read := func(network string) {
			all.Go(func() {
				ctx, c := p.Begin(t.Context(), network)
				done, err := c.Read(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				defer done()
				mu.Lock()
				order = append(order, network)
				mu.Unlock()
				time.Sleep(time.Second)
			})
			synctest.Wait()
		}
		for range 4 {
			read("many")
		}
		read("one")
		began := time.Now()
		all.Wait()
		if want := []string{"many", "many", "one", "many", "many"}; !slices.Equal(order, want) || time.Since(began) != 5*time.Second {
			t.Errorf("read in the order %v in %v, want %v one after the other", order, time.Since(began), want)
		}
		p.reads.empty(t)
	})
}

func TestWorkerFitsItsLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for limit, ok := range map[int64]bool{270 << 20: true, 120 << 20: false} {
		debug.SetMemoryLimit(limit)
		p, err := NewWorker()
		if (err == nil) != ok {
			t.Errorf("a limit of %d MiB: %v, want success: %v", limit>>20, err, ok)
		}
		if err == nil && p.memory.Total()*16/10+code+caches > limit {
			t.Errorf("a limit of %d MiB: the tickets are %d MiB, too many", limit>>20, p.memory.Total()>>20)
		}
	}
}
