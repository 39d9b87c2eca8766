package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairpact/fairpact/internal/platform/budget"
)

// held is a group whose runs wait until the test opens them.
type held struct {
	*Group[int, int]
	open chan struct{}
	fail error // fails a run that has the query 4

	mu   sync.Mutex
	runs [][]int
}

func newHeld(o Options[int, int]) *held {
	h := &held{open: make(chan struct{})}
	o.Run = func(ctx context.Context, queries []int) ([]int, error) {
		h.mu.Lock()
		h.runs = append(h.runs, queries)
		h.mu.Unlock()
		select {
		case <-h.open:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if h.fail != nil && slices.Contains(queries, 4) {
			return nil, h.fail
		}
		return queries, nil
	}
	h.Group = New(o)
	return h
}

// do makes the calls first, …, end-1 in this order, and calls the function `answered` with each
// answer.
func (h *held) do(ctx context.Context, first, end int, answered func(query, answer int, err error)) {
	for n := first; n < end; n++ {
		go func() {
			answer, err := h.Do(ctx, n)
			answered(n, answer, err)
		}()
		synctest.Wait()
	}
}

func (h *held) sizes() (sizes []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, run := range h.runs {
		sizes = append(sizes, len(run))
	}
	return sizes
}

// oneBelow6 lets a run have at most one query below 6.
func oneBelow6() func(int) bool {
	taken := false
	return func(n int) bool {
		fits := n >= 6 || !taken
		taken = taken || n < 6
		return fits
	}
}

func TestCallsThatWaitShareARun(t *testing.T) {
	refused := errors.New("refused")
	for what, c := range map[string]struct {
		o     Options[int, int]
		fail  error
		sizes []int
		wrong []int // the queries that fail
	}{
		"no limit":               {Options[int, int]{}, nil, []int{1, 9}, nil},
		"a limit":                {Options[int, int]{Fits: AtMost[int](4)}, nil, []int{1, 4, 4, 1}, nil},
		"one of a kind":          {Options[int, int]{Fits: oneBelow6}, nil, []int{1, 5, 1, 1, 1, 1}, nil}, // 1 with 6 to 9, then 2 to 5
		"a run fails":            {Options[int, int]{}, refused, []int{1, 9}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"each query runs again":  {Options[int, int]{Again: func(err error) bool { return err == refused }}, refused, append([]int{1, 9}, slices.Repeat([]int{1}, 9)...), []int{4}},
		"not after another kind": {Options[int, int]{Again: func(err error) bool { return err != refused }, Fits: AtMost[int](5)}, refused, []int{1, 5, 4}, []int{1, 2, 3, 4, 5}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.o.Slots = make(Slots, 1)
				h := newHeld(c.o)
				h.fail = c.fail
				var mu sync.Mutex
				var wrong []int
				h.do(t.Context(), 0, 10, func(query, answer int, err error) {
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						wrong = append(wrong, query)
					} else if answer != query {
						t.Errorf("call %d got the answer %d, want its own", query, answer)
					}
				})
				close(h.open)
				synctest.Wait()
				h.Close()
				if slices.Sort(wrong); !slices.Equal(h.sizes(), c.sizes) || !slices.Equal(wrong, c.wrong) {
					t.Errorf("runs of %v calls, failed %v; want %v, %v", h.sizes(), wrong, c.sizes, c.wrong)
				}
			})
		})
	}
}

func TestCallsEndWithTheirContextAndAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odd := errors.New("converted")
		h := newHeld(Options[int, int]{Slots: make(Slots, 1), Queue: 3, Convert: func(err error) error { return errors.Join(odd, err) }})
		ends := func(want error) func(int, int, error) {
			return func(query, _ int, err error) {
				if !errors.Is(err, want) || !errors.Is(err, odd) {
					t.Errorf("call %d: %v, want %v", query, err, want)
				}
			}
		}
		gone, leave := context.WithCancel(t.Context())
		h.do(gone, 0, 3, ends(context.Canceled)) // call 0 runs, calls 1 and 2 wait
		leave()
		synctest.Wait()
		h.do(t.Context(), 3, 4, func(_, answer int, err error) {
			if err != nil || answer != 3 {
				t.Errorf("call 3: %d, %v; want its own number", answer, err)
			}
		})
		h.do(t.Context(), 5, 7, ends(ErrFull))
		h.open <- struct{}{}
		h.open <- struct{}{}
		synctest.Wait()
		if want := [][]int{{0}, {3}}; !slices.EqualFunc(h.runs, want, slices.Equal) {
			t.Errorf("runs %v, want %v: the callers of 1 and 2 left before their run", h.runs, want)
		}
		h.do(t.Context(), 7, 9, ends(ErrClosed)) // call 7 runs, call 8 waits
		h.Close()
		h.do(t.Context(), 9, 10, ends(ErrClosed))
	})
}

func TestGroupsShareSlotsAndRunsMayOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := make(Slots, 2)
		idle := 0
		waits := newHeld(Options[int, int]{Slots: slots, Overlap: true, Fill: time.Second, Idle: func() { idle++ }})
		other := newHeld(Options[int, int]{Slots: slots})
		ok := func(query, answer int, err error) {
			if err != nil || answer != query {
				t.Errorf("call %d: %d, %v; want its own number", query, answer, err)
			}
		}
		waits.do(t.Context(), 0, 3, ok)
		if len(waits.sizes()) != 1 {
			t.Errorf("runs %v, want the second to wait for the first", waits.runs)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(waits.sizes(), []int{1, 2}) {
			t.Errorf("runs %v, want a second after the time to overlap", waits.runs)
		}
		other.do(t.Context(), 0, 2, ok)
		if len(other.sizes()) != 0 {
			t.Errorf("runs %v, want none: both slots are taken", other.runs)
		}
		close(waits.open)
		close(other.open)
		synctest.Wait()
		if !slices.Equal(other.sizes(), []int{2}) || len(slots) != 0 || idle != 1 {
			t.Errorf("runs %v, %d slots taken, %d times idle; want one run, 0 and 1", other.runs, len(slots), idle)
		}
		answers, errs := other.Together(t.Context(), []int{1, 2, 3})
		if errors.Join(errs...) != nil || !slices.Equal(answers, []int{1, 2, 3}) || !slices.Equal(other.sizes(), []int{2, 3}) {
			t.Errorf("together: %v, %v in runs %v; want one run", answers, errs, other.runs)
		}
		waits.Close()
		other.Close()
	})
}

// A query waits for a run that takes 50 µs, and shares it with the queries of the other callers.
func BenchmarkDo(b *testing.B) {
	g := New(Options[int, int]{Slots: make(Slots, 2), Run: func(_ context.Context, queries []int) ([]int, error) {
		time.Sleep(50 * time.Microsecond)
		return queries, nil
	}})
	defer g.Close()
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Do(b.Context(), 1); err != nil {
				b.Error(err)
			}
		}
	})
}

// A call does not wait behind those of another network that fill several runs.
func TestNetworksTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(Options[int, int]{Slots: make(Slots, 1), Fits: AtMost[int](100)})
		defer h.Close()
		process, err := budget.NewWorker()
		if err != nil {
			t.Fatal(err)
		}
		in := func(network string) context.Context {
			ctx, call := process.Begin(t.Context(), network)
			t.Cleanup(call.End)
			return ctx
		}
		answered := func(_, _ int, err error) {
			if err != nil {
				t.Error(err)
			}
		}
		h.do(in("first"), 0, 1, answered) // its run is held
		h.do(in("greedy"), 1000, 1500, answered)
		h.do(in("other"), 1, 3, answered)
		for range 1 + 6 {
			h.open <- struct{}{}
			synctest.Wait()
		}
		second := h.runs[1]
		if len(second) != 100 || !slices.Equal(second[share:share+2], []int{1, 2}) || second[share+2] != 1000+share {
			t.Errorf("the second run has %v, want %d calls of the greedy network, those of the other, and then the rest of 100", second, share)
		}
		if all := slices.Concat(h.runs...); len(all) != 503 {
			t.Errorf("%d calls ran, want 503", len(all))
		}
	})
}

// A call has no turn while it waits. After a run of many calls, each waits for a turn if it had one.
func TestCallsHaveNoTurnWhileTheyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(Options[int, int]{Slots: make(Slots, 1)})
		defer h.Close()
		process, err := budget.NewWorker() // with one turn
		if err != nil {
			t.Fatal(err)
		}
		for n := range 1 + crowd + 1 { // the first has a run of its own
			ctx, call := process.Begin(t.Context(), "caller")
			had := n%2 == 0
			if had {
				if err := call.Turn(ctx); err != nil {
					t.Fatal(err)
				}
			}
			h.do(ctx, n, n+1, func(_, _ int, err error) {
				if want := had && n > 0; err != nil || call.HasTurn() != want {
					t.Errorf("%v; after its run, call %d has a turn: %v, want %v", err, n, call.HasTurn(), want)
				}
				call.End()
			})
			if call.HasTurn() {
				t.Errorf("call %d has a turn while it waits", n)
			}
		}
		h.open <- struct{}{}
		h.open <- struct{}{}
		synctest.Wait()
		if sizes := h.sizes(); !slices.Equal(sizes, []int{1, crowd + 1}) {
			t.Errorf("the runs have %v calls, want 1 and %d", sizes, crowd+1)
		}
	})
}
