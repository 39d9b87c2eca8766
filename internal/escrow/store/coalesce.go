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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairpact/fairpact/internal/platform/timelimits"
)

// A group is the calls that a coalescer runs as one statement.
const (
	maxGroup     = 512     // maximum number of calls in one statement
	maxGroupSize = 1 << 20 // maximum bytes of arguments or of answers in one statement; a larger call runs alone
	largeRead    = 1 << 18 // if a group is one read of at least this many bytes, the next group does not wait for it
	statements   = 2       // maximum number of statements under way at once, not counting those that wait for a locked deal
	slowDeals    = 4       // maximum number of locked deals to wait for at once, each on its own connection
	groupTimeout = timelimits.Statement
	// fillTime is the longest time that a group of reads waits for the previous group to end.
	// Meanwhile more calls join the waiting group.
	fillTime = 250 * time.Millisecond
)

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/escrow/store")

// budget bounds how many statements a store's coalescers have under way at once.
// Under load, calls that wait for a statement slot form larger groups.
type budget struct {
	statements, slowDeals chan struct{}
	answered              *atomic.Int64 // time of the database's last answer, unix milliseconds
}

func newBudget() budget {
	return budget{make(chan struct{}, statements), make(chan struct{}, slowDeals), new(atomic.Int64)}
}

// coalescer collects the calls that wait at the same moment into a group, and runs each
// group as one statement. The calls of a group may concern many deals. All calls of a group
// share one round trip and one flush of the write-ahead log. If no other call waits or runs, a
// call starts at once.
//
// A statement skips each deal whose row another transaction has locked. The calls of a
// skipped deal are put aside and wait for the deal's lock together. Calls of other deals do
// not wait for this lock. A store waits for the locks of at most slowDeals deals at once.
type coalescer[Q, A any] struct {
	// run executes the calls in one transaction and one round trip, and returns one
	// answer for each call. If wait is true, all calls are of one deal, and run waits for
	// the deal's lock instead of skipping the deal.
	run  func(ctx context.Context, calls []Q, wait bool) ([]A, error)
	size func(Q) int // estimated bytes of a query or of its answer; nil: too few to count
	// row returns a name of the table row that a call writes. A group has at most one call for
	// each row. Groups run one at a time, except those that wait for a locked deal. If row is
	// nil, groups may run concurrently.
	row              func(Q) string
	waitsForPrevious bool           // whether to wait up to fillTime for the previous group to end, so that more calls join
	deal             func(Q) string // the deal whose row lock a query needs; nil: no lock
	skipped          func(A) bool   // whether an answer says that another transaction held the lock; nil if the field deal is nil

	queue  chan *call[Q, A]
	budget budget
	stop   context.CancelFunc
	loops  sync.WaitGroup

	mu sync.Mutex
	// aside holds, by deal, the calls that found the deal's row locked. A goroutine (waitFor)
	// runs for each key. Guarded by mu.
	aside map[string][]*call[Q, A]
}

// call is one caller's query. The channel `done` buffers one outcome, so that the
// coalescer's goroutines never block on a caller that gave up.
type call[Q, A any] struct {
	query Q
	span  trace.Span
	done  chan outcome[A]
}

type outcome[A any] struct {
	answer A
	err    error
}

func (c *coalescer[Q, A]) start(b budget) *coalescer[Q, A] {
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.budget, c.aside = stop, b, make(map[string][]*call[Q, A])
	c.queue = make(chan *call[Q, A], 4*maxGroup)
	c.loops.Go(func() { c.serve(ctx) })
	return c
}

// close interrupts the statements under way. Call close only when no caller waits, because
// a queued call would never get an answer.
func (c *coalescer[Q, A]) close() {
	c.stop()
	c.loops.Wait()
}

// do queues a call for the next group and waits for the call's answer. If ctx ends first,
// the call may still take effect.
func (c *coalescer[Q, A]) do(ctx context.Context, query Q) (answer A, err error) {
	_, span := tracer.Start(ctx, "grouped statement")
	defer span.End()
	one := &call[Q, A]{query, span, make(chan outcome[A], 1)}
	select {
	case c.queue <- one:
	case <-ctx.Done():
		return answer, translate(ctx.Err())
	}
	select {
	case got := <-one.done:
		return got.answer, translate(got.err)
	case <-ctx.Done():
		return answer, translate(ctx.Err())
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
		if c.row != nil { // one group at a time: a second group could block on the row locks of this group
			c.execute(ctx, group.calls, false)
			<-c.budget.statements
			continue
		}
		done := make(chan struct{})
		c.loops.Go(func() {
			defer func() { <-c.budget.statements; close(done) }()
			c.execute(ctx, group.calls, false)
		})
		if c.waitsForPrevious && (len(group.calls) > 1 || group.size < largeRead) {
			select {
			case <-done:
			case <-time.After(fillTime):
			}
		}
	}
}

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

// add returns false if the call must go into the next group.
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
		if _, taken := g.rows[row]; taken {
			return false
		}
		g.rows[row] = struct{}{}
	}
	g.calls, g.size = append(g.calls, one), size
	return true
}

// reads returns the field `run` of a coalescer whose statement only reads. The statement gets
// each distinct query once. The parameter `scan` reads a row and sets *n to the position of
// the row's query in the slice `unique`, counted from 1. The answer to a query without a row is nil.
func reads[Q comparable, A any](s *Store, statement string, columns func(unique []Q) []any,
	scan func(row pgx.CollectableRow, n *int, unique []Q) (*A, error)) func(context.Context, []Q, bool) ([]*A, error) {
	return func(ctx context.Context, calls []Q, _ bool) ([]*A, error) {
		unique, at := distinct(calls)
		found := make([]*A, len(unique))
		rows, _ := s.pool.Query(ctx, statement, columns(unique)...) // `each` below returns the error of Query
		err := each(func(row pgx.CollectableRow) error {
			var n int
			one, err := scan(row, &n, unique)
			if err == nil {
				found[n-1] = one
			}
			return err
		})(rows)
		answers := make([]*A, len(calls))
		for i, n := range at {
			answers[i] = found[n]
		}
		return answers, err
	}
}

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

// drain moves queued calls into the group. It returns the first call that does not fit, or nil.
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

// execute runs a group and answers its calls. Unless wait is true, a call whose deal is locked
// goes to putAside instead. If a call or a conflict makes the transaction roll back (a
// replayed Idempotency-Key, a deadlock), execute runs each call separately. After a timeout or
// a broken connection, execute does not try again, because the outcome is unknown. A second
// try could mistake the insert of the first try for an insert of another caller.
func (c *coalescer[Q, A]) execute(ctx context.Context, group []*call[Q, A], wait bool) {
	queries := make([]Q, len(group))
	for i, one := range group {
		queries[i] = one.query
	}
	// Only the trace of the first caller shows the statement.
	answers, err := c.attempt(trace.ContextWithSpan(ctx, group[0].span), queries, wait)
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

// attempt runs the statement once. It turns a panic into an error, because a panic on a
// goroutine of the coalescer would end the process.
func (c *coalescer[Q, A]) attempt(ctx context.Context, queries []Q, wait bool) (answers []A, err error) {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	defer recovered(&err)
	return c.run(ctx, queries, wait)
}

// errPanicked is returned when the store's own code panicked. It does not count as
// an outage.
var errPanicked = errors.New(`store: panic during a statement: see the log message "panic" for the stack`)

// recovered logs a panic and sets *err to errPanicked. Defer recovered directly, because recover
// stops a panic only in the deferred function itself.
func recovered(err *error) {
	if fault := recover(); fault != nil {
		slog.Error("panic", "fault", fault, "stack", string(debug.Stack()))
		*err = errPanicked
	}
}

// retriable reports whether the calls of a failed group may succeed when each runs separately.
// The SQLSTATE classes are 22 data exception, 23 constraint violation, and 40 serialization
// failure or deadlock.
func retriable(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23") || strings.HasPrefix(pg.Code, "40"))
}

// putAside queues a call whose deal's row another transaction has locked. waitFor runs the
// queued calls of a deal.
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

// waitFor runs the calls in c.aside[deal] until there are no more. Its statements wait for the lock
// of the deal's row. All other statements skip a locked deal.
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
