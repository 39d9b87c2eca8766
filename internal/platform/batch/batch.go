// Package batch lets calls that wait at the same moment share one run, such as one SQL
// statement. No timer delays a run, so a single call runs at once. A run starts after its
// calls have arrived, so an answer is never older than its call.
//
// If more calls wait than a run takes, the networks of their clients (budget.Call) take turns, each with `share` calls.
package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/platform/budget"
)

var (
	// ErrFull is returned when Options.Queue calls wait already.
	ErrFull = errors.New("too many calls wait: try again later")
	// ErrClosed is returned when the group is closed.
	ErrClosed = errors.New("this process is stopping")
)

// Slots bounds the number of concurrent runs. Groups may share Slots.
type Slots chan struct{}

// Options configures a Group. Only Run and Slots are required.
type Options[Q, A any] struct {
	Slots Slots
	// Run returns one answer for each query. Its ctx has the values of the first caller's ctx,
	// but ends only with the group.
	Run func(ctx context.Context, queries []Q) ([]A, error)
	// Fits returns a function that reports for one query after another whether it joins the next
	// run. One that does not waits for a later run. The first that is asked for always joins.
	Fits func() func(Q) bool
	// Overlap lets runs of the group overlap. The next run waits for the end of a run for at most Fill.
	Overlap bool
	Fill    time.Duration
	// Again reports whether each query of a failed run should run alone.
	Again func(error) bool
	// Convert converts errors of the group itself: ErrFull, ErrClosed and the error of a
	// caller's ctx.
	Convert func(error) error
	Queue   int    // maximum number of waiting calls; 0: no limit
	Idle    func() // called when no call waits or runs
}

// Group collects calls into runs. It is safe for concurrent use.
type Group[Q, A any] struct {
	Options[Q, A]
	ctx   context.Context // ends at Close
	stop  context.CancelFunc
	loops sync.WaitGroup

	mu sync.Mutex
	// mu guards the fields below.
	waiting []*call[Q, A]
	serving bool
}

const (
	share = 16 // how many calls of a network join a run before those of others
	crowd = 16 // calls of a run that may go on at once; to wait for a turn would slow them down
)

type call[Q, A any] struct {
	query   Q
	ctx     context.Context
	network string
	with    atomic.Int64  // how many calls the run had
	ended   chan struct{} // closed once answer and err are set
	answer  A
	err     error
}

// New returns a group. Call Close when it is no longer needed.
func New[Q, A any](o Options[Q, A]) *Group[Q, A] {
	g := &Group[Q, A]{Options: o}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g
}

// AtMost returns a value for Options.Fits: a run has at most n queries.
func AtMost[Q any](n int) func() func(Q) bool {
	return func() func(Q) bool {
		left := n
		return func(Q) bool { left--; return left >= 0 }
	}
}

// Do waits until a run has answered the query. If ctx ends while the query waits for its run, the
// query does not run. If ctx ends later, Do returns while the run continues.
// The call in ctx gives back its turn at the CPU. After a run of more than `crowd` calls, which else would all go on at
// once, it waits for another one.
func (g *Group[Q, A]) Do(ctx context.Context, query Q) (A, error) {
	of := budget.From(ctx)
	had := of.HasTurn()
	of.Rest()
	one := newCall[Q, A](ctx, query)
	if err := g.add(one); err != nil {
		return g.failed(err)
	}
	answer, err := g.wait(one)
	if had && one.with.Load() > crowd {
		_ = of.Turn(ctx) // without one, it continues: the run may have had an effect
	}
	return answer, err
}

// Together runs all queries at the same moment, so that they share a run.
func (g *Group[Q, A]) Together(ctx context.Context, queries []Q) ([]A, []error) {
	calls, answers, errs := make([]*call[Q, A], len(queries)), make([]A, len(queries)), make([]error, len(queries))
	for i, query := range queries {
		calls[i] = newCall[Q, A](ctx, query)
	}
	err := g.add(calls...)
	for i, one := range calls {
		if err != nil {
			answers[i], errs[i] = g.failed(err)
		} else {
			answers[i], errs[i] = g.wait(one)
		}
	}
	return answers, errs
}

func newCall[Q, A any](ctx context.Context, query Q) *call[Q, A] {
	return &call[Q, A]{query: query, ctx: ctx, network: budget.From(ctx).Network(), ended: make(chan struct{})}
}

// Close ends the calls that wait, cancels the runs, and waits until the runs have ended.
func (g *Group[Q, A]) Close() {
	g.mu.Lock()
	g.stop()
	g.mu.Unlock()
	g.loops.Wait()
}

func (g *Group[Q, A]) add(calls ...*call[Q, A]) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ctx.Err() != nil:
		return ErrClosed
	case g.Queue > 0 && len(g.waiting)+len(calls) > g.Queue:
		return ErrFull
	}
	g.waiting = append(g.waiting, calls...)
	if !g.serving {
		g.serving = true
		g.loops.Go(g.serve)
	}
	return nil
}

func (g *Group[Q, A]) wait(one *call[Q, A]) (A, error) {
	select {
	case <-one.ended:
		return one.answer, one.err
	case <-one.ctx.Done():
		return g.failed(one.ctx.Err())
	case <-g.ctx.Done():
		return g.failed(ErrClosed)
	}
}

func (g *Group[Q, A]) failed(err error) (none A, _ error) {
	if g.Convert != nil {
		err = g.Convert(err)
	}
	return none, err
}

// serve starts runs while calls wait. It takes the calls of a run only once it has a slot, so
// that calls which wait for a slot form larger runs.
func (g *Group[Q, A]) serve() {
	for g.more() {
		select {
		case g.Slots <- struct{}{}:
		case <-g.ctx.Done():
			return
		}
		calls, queries := g.take()
		if len(calls) == 0 {
			<-g.Slots
			continue
		}
		if !g.Overlap {
			g.answer(calls, queries)
			<-g.Slots
			continue
		}
		ended := make(chan struct{})
		g.loops.Go(func() {
			g.answer(calls, queries)
			<-g.Slots
			close(ended)
		})
		if g.Fill > 0 {
			select {
			case <-ended:
			case <-time.After(g.Fill):
			}
		}
	}
	if g.Idle != nil {
		g.Idle()
	}
}

// more reports whether a call waits. If not, serve must return.
func (g *Group[Q, A]) more() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.serving = len(g.waiting) > 0
	return g.serving
}

func (g *Group[Q, A]) take() (calls []*call[Q, A], queries []Q) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fits := func(Q) bool { return true }
	if g.Fits != nil {
		fits = g.Fits()
	}
	waiting := g.waiting
	if len(waiting) > share {
		waiting = inTurns(waiting)
	}
	left := g.waiting[:0]
	for _, one := range waiting {
		switch {
		case one.ctx.Err() != nil:
		case fits(one.query) || len(calls) == 0:
			calls, queries = append(calls, one), append(queries, one.query)
		default:
			left = append(left, one)
		}
	}
	clear(g.waiting[len(left):]) // for the garbage collector
	g.waiting = left
	return calls, queries
}

// inTurns returns the calls in the order in which their networks take turns.
func inTurns[Q, A any](waiting []*call[Q, A]) []*call[Q, A] {
	of := make(map[string]int)
	var rounds [][]*call[Q, A]
	for _, one := range waiting {
		round := of[one.network] / share
		of[one.network]++
		if round == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[round] = append(rounds[round], one)
	}
	return slices.Concat(rounds...)
}

func (g *Group[Q, A]) answer(calls []*call[Q, A], queries []Q) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(calls[0].ctx))
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	answers, err := g.Run(ctx, queries)
	again := err != nil && len(calls) > 1 && g.Again != nil && g.Again(err)
	for i, one := range calls {
		one.with.Store(int64(len(calls)))
		if again {
			g.answer(calls[i:i+1], queries[i:i+1])
			continue
		}
		if one.err = err; err == nil {
			one.answer = answers[i]
		}
		close(one.ended)
	}
}
