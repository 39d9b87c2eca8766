package budget

import (
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
