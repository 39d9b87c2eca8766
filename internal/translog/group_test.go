package translog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
)

func TestGroupIsBoundedAndEndsAtClose(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	var sizes []int
	g := newGroup(1, 3, 5, func(ctx context.Context, calls []int) ([]int, error) {
		sizes = append(sizes, len(calls))
		select {
		case <-held:
			return calls, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	var all sync.WaitGroup
	for n := range 5 {
		all.Go(func() {
			if got, err := g.do(t.Context(), n); err != nil || got != n {
				t.Errorf("call %d: answer %d, %v; want its own number", n, got, err)
			}
		})
		eventually(t, "the call runs or waits", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.running == 1 && len(g.waiting) == n
		})
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := second(g.do(gone, 5)); !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose caller has left: %v, want context.Canceled", err)
	}
	if err := second(g.do(gone, 6)); !errors.Is(err, ErrUnavailable) || errors.Is(err, context.Canceled) {
		t.Errorf("a call beyond the limit: %v, want ErrUnavailable at once", err)
	}
	close(held)
	all.Wait()
	g.close()
	if !slices.Equal(sizes, []int{1, 3, 1}) {
		t.Errorf("runs of %v calls, want 1, 3 and 1: the caller of call 5 has left", sizes)
	}
	if err := second(g.do(t.Context(), 7)); !errors.Is(err, errClosed) {
		t.Errorf("a call after close: %v, want errClosed", err)
	}
}
