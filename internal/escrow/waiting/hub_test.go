package waiting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

type deals struct {
	mu    sync.Mutex
	marks map[string]store.DealProgress
	reads int
	err   error
}

func (d *deals) read(_ context.Context, ids []string) (found []store.DealProgress, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	for _, id := range ids {
		if m, ok := d.marks[id]; ok {
			found = append(found, m)
		}
	}
	return found, d.err
}

func (d *deals) set(id string, phase deal.State, acted int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.marks == nil {
		d.marks = map[string]store.DealProgress{}
	}
	d.marks[id] = store.DealProgress{DealID: id, Progress: store.Progress{Phase: phase, Acted: acted}}
}

func (d *deals) mark(id string) store.Progress {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.marks[id].Progress
}

func (d *deals) asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads
}

func (d *deals) fails(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func bubble(t *testing.T, test func(t *testing.T, h *Hub, d *deals)) {
	synctest.Test(t, func(t *testing.T) {
		d := &deals{}
		h := New(d.read, nil, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.Run(ctx) })
		test(t, h, d)
		cancel()
		running.Wait()
	})
}

func waiter(t *testing.T, h *Hub, d *deals, id string, stateOnly bool, long time.Duration) <-chan bool {
	t.Helper()
	c := h.Join(id)
	woken := make(chan bool, 1)
	go func() {
		defer c.Leave()
		woken <- c.Wait(t.Context(), d.mark(id), stateOnly, time.After(long))
	}()
	synctest.Wait()
	return woken
}

func TestWaitEndsWithAChange(t *testing.T) {
	bubble(t, func(t *testing.T, h *Hub, d *deals) {
		h.SetConnected(true)
		d.set("d_1", deal.Committing, 1)
		d.set("d_2", deal.Committing, 1)
		one, other := waiter(t, h, d, "d_1", false, Longest), waiter(t, h, d, "d_2", false, Longest)
		d.set("d_1", deal.Committing, 2)
		began := time.Now()
		h.Notify("d_1")
		if !<-one || time.Since(began) > batchDelay {
			t.Errorf("the wait ended after %s, want a wake within %s", time.Since(began), batchDelay)
		}
		if <-other {
			t.Error("the call of a deal that did not change was woken, want it to wait")
		}
		if took := time.Since(began); took != Longest {
			t.Errorf("the call of a deal that did not change waited %s, want %s", took, Longest)
		}
	})
}

func TestWaitForAnotherState(t *testing.T) {
	bubble(t, func(t *testing.T, h *Hub, d *deals) {
		d.set("d_1", deal.Committing, 1)
		woken := waiter(t, h, d, "d_1", true, Longest)
		d.set("d_1", deal.Committing, 2)
		h.Notify("d_1")
		time.Sleep(2 * pollInterval)
		select {
		case <-woken:
			t.Fatal("the call was woken by a commitment, want it to wait for another state")
		default:
		}
		d.set("d_1", deal.Revealing, 0)
		h.Notify("d_1")
		if !<-woken {
			t.Error("the call was not woken by the new state, want a wake")
		}
	})
}

// A change between Join and Wait ends the Wait, because the caller may have read the deal before
// the change.
func TestChangeBeforeTheWaitEndsIt(t *testing.T) {
	bubble(t, func(t *testing.T, h *Hub, d *deals) {
		h.SetConnected(true)
		d.set("d_1", deal.Committing, 1)
		c := h.Join("d_1")
		defer c.Leave()
		seen := d.mark("d_1")
		d.set("d_1", deal.Committing, 2)
		h.Notify("d_1")
		synctest.Wait()
		if !c.Wait(t.Context(), seen, false, time.After(Longest)) {
			t.Error("Wait = false, want true: the deal changed after Join")
		}
	})
}

func TestOneStatementReadsForAll(t *testing.T) {
	const calls = 5000
	for _, c := range []struct {
		connected bool
		seconds   int // seconds between two polls of all deals
	}{{false, 1}, {true, slowPollFactor}} {
		t.Run(fmt.Sprintf("connected %v", c.connected), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *Hub, d *deals) {
				h.SetConnected(c.connected)
				// Start the calls below between two periodic polls: a poll between Join and Wait
				// would wake the call.
				time.Sleep(time.Minute + pollInterval/2)
				if n := d.asked(); n != 0 {
					t.Errorf("%d statements without waiting calls, want 0", n)
				}
				var all sync.WaitGroup
				for i := range calls {
					id := fmt.Sprint("d_", i)
					d.set(id, deal.Committing, 0)
					all.Go(func() {
						call := h.Join(id)
						defer call.Leave()
						if woken := call.Wait(t.Context(), d.mark(id), false, time.After(Longest)); woken != (i == 7) {
							t.Errorf("call %d was woken: %v, want %v", i, woken, i == 7)
						}
					})
				}
				synctest.Wait()
				time.Sleep(Longest / 2)
				d.set("d_7", deal.Committing, 1)
				all.Wait()
				if most := int(Longest/pollInterval)/c.seconds + 1; d.asked() > most {
					t.Errorf("%d statements in %s, want at most %d", d.asked(), Longest, most)
				}
			})
		})
	}
}

func TestFailedLookIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, h *Hub, d *deals) {
		h.SetConnected(true)
		d.set("d_1", deal.Committing, 1)
		woken := waiter(t, h, d, "d_1", false, Longest)
		d.set("d_1", deal.Revealing, 0)
		d.fails(errors.New("gone"))
		h.Notify("d_1")
		synctest.Wait()
		d.fails(nil)
		began := time.Now()
		if !<-woken || time.Since(began) > pollInterval {
			t.Errorf("the wait ended after %s, want a wake within %s", time.Since(began), pollInterval)
		}
	})
}

func TestReconnectedLooksAtAll(t *testing.T) {
	bubble(t, func(t *testing.T, h *Hub, d *deals) {
		d.set("d_1", deal.Committing, 1)
		woken := waiter(t, h, d, "d_1", false, Longest)
		d.set("d_1", deal.Committing, 2)
		began := time.Now()
		h.SetConnected(true)
		if !<-woken || time.Since(began) > batchDelay {
			t.Errorf("the wait ended after %s, want a wake within %s", time.Since(began), batchDelay)
		}
	})
}

func TestLeave(t *testing.T) {
	h := New((&deals{}).read, nil, slog.New(slog.DiscardHandler))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		c := h.Join("d_1")
		h.NotifyLocal("d_1", "d_unknown")
		if c.Wait(gone, store.Progress{}, false, nil) {
			t.Error("Wait = true, want false: its context has ended")
		}
		c.Leave()
	}
	if len(h.deals)+len(h.touched) != 0 {
		t.Errorf("the hub holds %d deals and %d touched deals, want none", len(h.deals), len(h.touched))
	}
}
