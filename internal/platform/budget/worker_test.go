package budget

import (
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

// One call reads at a time, and a network with one read does not wait for all reads of another.
func TestNetworksTakeTurnsToRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Process{ones: [kinds]*Budget{LargeRead: New(Options{Size: 1})}}
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		read := func(network string) {
			all.Go(func() {
				ctx, c := p.Begin(t.Context(), network)
				done, err := c.One(ctx, LargeRead)
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
		p.ones[LargeRead].empty(t)
	})
}

// A large deal gives up its place after workerWait, and one that has its memory waits for its turn.
func TestLargeDealsDoNotKeepOutOthers(t *testing.T) {
	before := debug.SetMemoryLimit(270 << 20)
	defer debug.SetMemoryLimit(before)
	synctest.Test(t, func(t *testing.T) {
		p, err := NewWorker()
		if err != nil {
			t.Fatal(err)
		}
		deal := func(name string, bytes int64) (*Call, error) {
			ctx, c := p.Begin(t.Context(), name)
			return c, c.Hold(ctx, bytes)
		}
		first, err := deal("first", p.large.Size/2)
		if err == nil {
			err = first.Long(t.Context())
		}
		second, also := deal("second", p.large.Size/2)
		if err := errors.Join(err, also); err != nil {
			t.Fatal(err)
		}
		if _, err := deal("small", SmallCall); err != nil {
			t.Errorf("a small deal beside them: %v", err)
		}
		began := time.Now()
		if _, err := deal("third", Largest); !problem.Is(err, problem.Overloaded) || time.Since(began) != workerWait {
			t.Errorf("a deal that finds no memory: %v after %v, want OVERLOADED after %v", err, time.Since(began), workerWait)
		}
		go func() {
			time.Sleep(turnWait - 1)
			first.End()
		}()
		if err := second.Long(t.Context()); err != nil {
			t.Errorf("the turn of a deal that has its memory: %v", err)
		}
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
		if err == nil && (p.small[0].Size+p.large.Size)*16/10+code+caches > limit {
			t.Errorf("a limit of %d MiB: the tickets are %d MiB, too many", limit>>20, (p.small[0].Size+p.large.Size)>>20)
		}
	}
}
