package store

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

const (
	maxGroup     = 512     // calls of one statement
	maxGroupSize = 1 << 20 // bytes of one statement's arguments or answers, unless a single call has more
	statements   = 2       // under way at once: the next groups fill meanwhile
	slowDeals    = 4       // that may wait for a lock at once, each on a connection of its own
	groupTimeout = 20 * time.Second
)

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/store")

// budget bounds what a store's coalescers have under way at once. Under load the
// calls that wait for a turn make larger groups.
type budget struct {
	statements, slowDeals chan struct{}
	answered              *atomic.Int64 // unix milliseconds: when the database last answered
}

func newBudget() budget {
	return budget{make(chan struct{}, statements), make(chan struct{}, slowDeals), new(atomic.Int64)}
}

// coalescer runs the calls that wait at the same moment, of any deals, as one
// statement: the round trips, wakeups and flushes of one serve all. Nothing
// waits for a timer, so a lone call goes at once.
//
// Where a statement skipped a deal because another transaction holds its row,
// that deal's calls wait for it together, aside, and slowDeals of them at once: a
// slow deal holds up no other, unless there are that many.
type coalescer[Q, A any] struct {
	// run executes the calls in one transaction and one round trip and returns an
	// answer for each. wait says to wait for locks instead of skipping; the calls
	// are then of one deal.
	run     func(ctx context.Context, calls []Q, wait bool) ([]A, error)
	size    func(Q) int    // bytes that a call sends or is answered, at most; nil: not worth counting
	row     func(Q) string // what a call writes: two of one row go into two groups; nil: the statement reads
	deal    func(Q) string // whose lock a call needs; nil: none
	skipped func(A) bool   // whether the lock was held by another; nil with deal

	queue  chan *call[Q, A]
	budget budget
	stop   context.CancelFunc
	loops  sync.WaitGroup

	mu sync.Mutex
	// aside holds, guarded by mu, the calls of each deal that somebody waits for
	// aside. A deal is a key as long as its goroutine runs.
	aside map[string][]*call[Q, A]
}

// call is what one caller waits for. done holds one answer, so that no loop
// ever blocks on a caller that gave up.
type call[Q, A any] struct {
	query Q
	span  trace.Span // the caller's wait
	done  chan outcome[A]
}

type outcome[A any] struct {
	answer A
	err    error
}

// start begins to serve calls.
func (c *coalescer[Q, A]) start(b budget) *coalescer[Q, A] {
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.budget, c.aside = stop, b, make(map[string][]*call[Q, A])
	c.queue = make(chan *call[Q, A], 4*maxGroup)
	c.loops.Go(func() { c.serve(ctx) })
	return c
}

// close breaks off the statements under way. No call may be waiting any more.
func (c *coalescer[Q, A]) close() {
	c.stop()
	c.loops.Wait()
}

// do adds a call to the next group and waits for its answer. Where ctx ends
// first the call may take place all the same.
func (c *coalescer[Q, A]) do(ctx context.Context, query Q) (answer A, err error) {
	_, span := tracer.Start(ctx, "grouped statement")
	defer span.End()
	one := &call[Q, A]{query, span, make(chan outcome[A], 1)}
	select {
	case c.queue <- one:
	case <-ctx.Done():
		return answer, outage(ctx.Err())
	}
	select {
	case got := <-one.done:
		return got.answer, outage(replayed(got.err))
	case <-ctx.Done():
		return answer, outage(ctx.Err())
	}
}

func (c *coalescer[Q, A]) serve(ctx context.Context) {
	var next *call[Q, A]
	for {
		if next == nil {
			select {
			case <-ctx.Done():
				return
			case next = <-c.queue:
			}
		}
		select {
		case <-ctx.Done():
			return
		case c.budget.statements <- struct{}{}:
		}
		group := c.newGroup(next)
		next = c.drain(group)
		if c.row != nil { // one group of writes at a time: the next one would meet its locks
			c.execute(ctx, group.calls, false)
			<-c.budget.statements
			continue
		}
		c.loops.Go(func() {
			defer func() { <-c.budget.statements }()
			c.execute(ctx, group.calls, false)
		})
	}
}

// group is calls that fit into one statement.
type group[Q, A any] struct {
	calls []*call[Q, A]
	size  int
	rows  map[string]struct{}
}

func (c *coalescer[Q, A]) newGroup(first *call[Q, A]) *group[Q, A] {
	g := &group[Q, A]{rows: make(map[string]struct{})}
	c.add(g, first)
	return g
}

// add adds a call to a group, or reports that it belongs into the next one.
func (c *coalescer[Q, A]) add(g *group[Q, A], one *call[Q, A]) bool {
	size := g.size
	if c.size != nil {
		size += c.size(one.query)
	}
	if len(g.calls) == maxGroup || len(g.calls) > 0 && size > maxGroupSize {
		return false
	}
	if c.row != nil {
		row := c.row(one.query)
		if _, twin := g.rows[row]; twin {
			return false
		}
		g.rows[row] = struct{}{}
	}
	g.calls, g.size = append(g.calls, one), size
	return true
}

// distinct returns each query once, and for each call the index of its query in
// that list.
func distinct[Q comparable](calls []Q) (unique []Q, at []int) {
	seen := make(map[Q]int, len(calls))
	at = make([]int, len(calls))
	for i, q := range calls {
		n, known := seen[q]
		if !known {
			n = len(unique)
			seen[q] = n
			unique = append(unique, q)
		}
		at[i] = n
	}
	return unique, at
}

// drain adds what waits now and returns the first call that did not fit.
func (c *coalescer[Q, A]) drain(g *group[Q, A]) *call[Q, A] {
	for {
		select {
		case next := <-c.queue:
			if !c.add(g, next) {
				return next
			}
		default:
			return nil
		}
	}
}

// execute runs a group and answers it. Where one call spoiled it for the others
// (a replayed Idempotency-Key, a deadlock) nothing of it was done, and each is
// tried alone. Where the time ran out or the connection broke the outcome is
// unknown, and a second try could call a caller's own insert a stranger's.
func (c *coalescer[Q, A]) execute(ctx context.Context, group []*call[Q, A], wait bool) {
	queries := make([]Q, len(group))
	for i, one := range group {
		queries[i] = one.query
	}
	answers, err := c.attempt(trace.ContextWithSpan(ctx, group[0].span), queries, wait) // one trace shows the statements
	switch {
	case err != nil && len(group) > 1 && retriable(err):
		for _, one := range group {
			c.execute(ctx, []*call[Q, A]{one}, wait)
		}
	case err != nil:
		for _, one := range group {
			one.done <- outcome[A]{err: err}
		}
	default:
		c.budget.answered.Store(time.Now().UnixMilli())
		for i, one := range group {
			if c.skipped != nil && !wait && c.skipped(answers[i]) {
				c.putAside(ctx, one)
				continue
			}
			one.done <- outcome[A]{answer: answers[i]}
		}
	}
}

// attempt is one bounded run. A panic in it is an error of its group's calls: these
// run on goroutines of no request, where it would end the process.
func (c *coalescer[Q, A]) attempt(ctx context.Context, queries []Q, wait bool) (answers []A, err error) {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	defer recovered(&err)
	return c.run(ctx, queries, wait)
}

// errPanicked means that the store's own code panicked. It is a fault of ours, not
// an outage.
var errPanicked = errors.New("store: panic")

// recovered turns the panic of the function that defers it into an error.
func recovered(err *error) {
	if fault := recover(); fault != nil {
		slog.Error("panic", "fault", fault, "stack", string(debug.Stack()))
		*err = errPanicked
	}
}

// retriable reports whether the transaction was rolled back for a reason that a
// call alone may not meet.
func retriable(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23") || strings.HasPrefix(pg.Code, "40"))
}

// putAside lets a call wait for its deal's row together with the deal's other calls.
func (c *coalescer[Q, A]) putAside(ctx context.Context, one *call[Q, A]) {
	deal := c.deal(one.query)
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting, served := c.aside[deal]
	c.aside[deal] = append(waiting, one)
	if !served {
		c.loops.Go(func() { c.waitFor(ctx, deal) })
	}
}

// waitFor runs the calls that were put aside for a deal until none is left.
func (c *coalescer[Q, A]) waitFor(ctx context.Context, deal string) {
	c.budget.slowDeals <- struct{}{}
	defer func() { <-c.budget.slowDeals }()
	for {
		c.mu.Lock()
		waiting := c.aside[deal]
		if len(waiting) == 0 {
			delete(c.aside, deal)
			c.mu.Unlock()
			return
		}
		c.aside[deal] = nil
		c.mu.Unlock()
		for len(waiting) > 0 {
			group := c.newGroup(waiting[0])
			for waiting = waiting[1:]; len(waiting) > 0 && c.add(group, waiting[0]); {
				waiting = waiting[1:]
			}
			c.execute(ctx, group.calls, true)
		}
	}
}
