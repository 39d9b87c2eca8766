package translog

import (
	"context"
	"fmt"
	"sync"
)

// group coalesces concurrent calls: the calls that wait share one run, which is one call of the
// function group.run. No timer delays a run, so a single call runs at once. A run starts after its
// calls have arrived, so the answers are never older than the calls.
type group[Q, A any] struct {
	run       func(ctx context.Context, queries []Q) ([]A, error) // returns one answer for each query
	runs      int                                                 // maximum number of concurrent runs
	most      int                                                 // a run takes no further call once it has this many queries
	maxQueued int                                                 // maximum number of waiting calls

	ctx   context.Context // the method close cancels ctx, and with it the context of every run
	stop  context.CancelFunc
	loops sync.WaitGroup

	mu sync.Mutex
	// mu guards the fields below. A run removes its calls from the list of waiting calls, so
	// no call runs twice.
	waiting []*call[Q, A]
	running int
	closed  bool
}

// call holds the queries of one caller. One run answers all these queries.
type call[Q, A any] struct {
	queries []Q
	ctx     context.Context   // the caller's context
	done    chan outcome[[]A] // buffered: a run does not block on a caller that gave up
}

type outcome[A any] struct {
	answer A
	err    error
}

func newGroup[Q, A any](runs, most, maxQueued int, run func(context.Context, []Q) ([]A, error)) *group[Q, A] {
	g := &group[Q, A]{run: run, runs: runs, most: most, maxQueued: maxQueued}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g
}

func (g *group[Q, A]) do(ctx context.Context, query Q) (answer A, err error) {
	answers, err := g.all(ctx, []Q{query})
	if err != nil {
		return answer, err
	}
	return answers[0], nil
}

// all adds the queries to the next call of g.run, which concurrent callers share. It returns an
// answer for each query. It returns ErrUnavailable if too many calls wait, the group is closed,
// or ctx ends before the answer. After ctx has ended, the queries may still run.
func (g *group[Q, A]) all(ctx context.Context, queries []Q) ([]A, error) {
	one := &call[Q, A]{queries, ctx, make(chan outcome[[]A], 1)}
	if err := g.add(one); err != nil {
		return nil, err
	}
	select {
	case got := <-one.done:
		return got.answer, got.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: no answer in time: %w", ErrUnavailable, ctx.Err())
	case <-g.ctx.Done():
		return nil, errClosed
	}
}

func (g *group[Q, A]) add(one *call[Q, A]) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return errClosed
	case len(g.waiting) >= g.maxQueued:
		return fmt.Errorf("%w: the limit of %d waiting calls is reached: try again later", ErrUnavailable, g.maxQueued)
	}
	g.waiting = append(g.waiting, one)
	if g.running < g.runs {
		g.running++
		g.loops.Go(g.serve)
	}
	return nil
}

func (g *group[Q, A]) serve() {
	for calls := g.take(); len(calls) > 0; calls = g.take() {
		queries := make([]Q, 0, len(calls))
		for _, one := range calls {
			queries = append(queries, one.queries...)
		}
		// g.run gets the trace and request id of the first call, but continues if that call's
		// ctx ends.
		ctx, cancel := context.WithCancel(context.WithoutCancel(calls[0].ctx))
		release := context.AfterFunc(g.ctx, cancel)
		answers, err := g.run(ctx, queries)
		release()
		cancel()
		for _, one := range calls {
			if err != nil {
				one.done <- outcome[[]A]{err: err}
				continue
			}
			n := len(one.queries)
			one.done <- outcome[[]A]{answer: answers[:n:n]}
			answers = answers[n:]
		}
	}
}

func (g *group[Q, A]) take() (calls []*call[Q, A]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for queries := 0; len(g.waiting) > 0 && queries < g.most && !g.closed; {
		if one := g.waiting[0]; one.ctx.Err() == nil {
			calls = append(calls, one)
			queries += len(one.queries)
		}
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
	}
	if len(calls) == 0 {
		g.running--
	}
	return calls
}

// close fails the waiting calls, cancels the runs, and waits until the runs have ended.
func (g *group[Q, A]) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop()
	g.loops.Wait()
}

var errClosed = fmt.Errorf("%w: this replica is stopping", ErrUnavailable)
