package store

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel"

	"github.com/fairpact/fairpact/internal/platform/batch"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	maxGroup     = 512     // maximum number of calls in one statement
	maxGroupSize = 1 << 20 // maximum bytes of arguments or of answers in one statement; a larger write runs alone
	// SmallRead is the most bytes that one call reads in a statement that it shares with others. With what
	// is made from them, they fit into budget.MaxSmall.
	SmallRead = 16 << 10
	// SmallWrite is the most bytes of arguments of a deal that is created or ends in a statement with others: about 400 parties.
	SmallWrite   = 128 << 10
	statements   = 2 // maximum number of statements under way at once, not counting large reads, and those that wait for a locked deal
	slowDeals    = 4 // maximum number of locked deals to wait for at once, each on its own connection
	groupTimeout = timelimits.Statement
	// fillTime is the longest time that a group of reads waits for the previous group to end.
	// Meanwhile more calls join the waiting group.
	fillTime = 250 * time.Millisecond
)

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/escrow/store")

// slots bounds how many statements a store's coalescers have under way at once.
type slots struct {
	statements, lookups, slowDeals batch.Slots
	answered                       *atomic.Int64 // time of the database's last answer, unix milliseconds
}

func newSlots() slots {
	return slots{make(batch.Slots, statements), make(batch.Slots, 1), make(batch.Slots, slowDeals), new(atomic.Int64)}
}

// coalescer runs calls that wait at the same moment as one statement (see package batch). The
// calls of a statement may concern many deals, and share one flush of the write-ahead log.
//
// A statement skips each deal whose row another transaction has locked. The calls of a skipped
// deal then share statements that wait for the deal's lock. Calls of other deals do not wait for
// this lock. A store waits for the locks of at most slowDeals deals at once.
//
// The path of a reveal: Store.Reveal, coalescer.do, batch.Group.Do, where the call waits. The goroutine of the
// group (Group.serve, Group.answer) calls the Run of `options` once for all calls of a statement. Run calls
// the field run, which Store.newActs sets, and Store.locked sends the statement. Back in `do`, `unlocked`
// repeats a call whose deal was skipped.
type coalescer[Q, A any] struct {
	// run executes the calls in one transaction and one round trip, and returns one
	// answer for each call. If wait is true, all calls are of one deal, and run waits for
	// the deal's lock instead of skipping the deal. It may be called twice with the same calls.
	run  func(ctx context.Context, calls []Q, wait bool) ([]A, error)
	size func(Q) int // estimated bytes of a query or of its answer; nil: too few to count
	// row returns a name of the table row that a call writes. A statement has at most one call for
	// each row, and statements of the coalescer do not overlap, except those that wait for a locked
	// deal: a second one could block on the row locks of the first. If row is nil, statements may
	// overlap.
	row     func(Q) string
	fill    time.Duration  // longest wait for the previous statement to end, so that more calls join; only if row is nil
	deal    func(Q) string // the deal whose row lock a query needs; nil: no lock
	skipped func(A) bool   // whether an answer says that another transaction held the lock; nil if the field deal is nil

	slots slots
	calls *batch.Group[Q, A]

	mu    sync.Mutex
	aside map[string]*batch.Group[Q, A] // by deal: the calls that wait for the lock of the deal's row; guarded by mu
}

func (c *coalescer[Q, A]) start(b slots) *coalescer[Q, A] { return c.startIn(b, b.statements) }

func (c *coalescer[Q, A]) startIn(b slots, statements batch.Slots) *coalescer[Q, A] {
	c.slots, c.aside = b, make(map[string]*batch.Group[Q, A])
	o := c.options(statements, false)
	o.Overlap, o.Fill = c.row == nil, c.fill
	c.calls = batch.New(o)
	return c
}

func (c *coalescer[Q, A]) options(slots batch.Slots, wait bool) batch.Options[Q, A] {
	return batch.Options[Q, A]{Slots: slots, Fits: c.fits, Again: retriable, Run: func(ctx context.Context, calls []Q) (answers []A, err error) {
		ctx, cancel := context.WithTimeout(ctx, groupTimeout)
		defer cancel()
		defer recovered(&err) // a panic on a goroutine of the group would end the process
		began := time.Now().UnixMilli()
		answers, err = c.run(ctx, calls, wait)
		if _, unsent := errors.AsType[*pgconn.ConnectError](err); unsent && c.slots.answered.Load() >= began {
			// The statement was not sent, and the database answered other calls meanwhile: retry once. One
			// of their connections may be idle now.
			answers, err = c.run(ctx, calls, wait)
		}
		if err == nil {
			c.slots.answered.Store(time.Now().UnixMilli())
		}
		return answers, err
	}}
}

// close interrupts the statements under way. Call close only when no caller waits.
func (c *coalescer[Q, A]) close() {
	c.calls.Close()
	c.mu.Lock()
	aside := slices.Collect(maps.Values(c.aside))
	c.mu.Unlock()
	for _, group := range aside {
		group.Close()
	}
}

// do waits for the answer of a statement. If ctx ends first, the call may still take effect.
func (c *coalescer[Q, A]) do(ctx context.Context, query Q) (A, error) {
	ctx, span := tracer.Start(ctx, "grouped statement")
	defer span.End()
	began := time.Now()
	answer, err := c.calls.Do(ctx, query)
	answer, err = c.unlocked(ctx, query, answer, err)
	if err != nil && ctx.Err() != nil && c.slots.answered.Load() > began.UnixMilli() {
		// The call ended in a queue of this process, while the database answered others.
		err = problem.New(problem.Overloaded, "too many calls wait for the database; send the same request again in a few seconds").WithRetryAfter(2).WithCause(err)
	}
	return answer, err
}

// unlocked returns the answer. If the deal was locked, it runs the call again behind the lock.
func (c *coalescer[Q, A]) unlocked(ctx context.Context, query Q, answer A, err error) (A, error) {
	if err == nil && c.skipped != nil && c.skipped(answer) {
		answer, err = c.waiting(c.deal(query)).Do(ctx, query)
	}
	return answer, translate(err)
}

// waiting returns the group of the calls that wait for the lock of a deal.
func (c *coalescer[Q, A]) waiting(deal string) *batch.Group[Q, A] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if group := c.aside[deal]; group != nil {
		return group
	}
	var group *batch.Group[Q, A]
	o := c.options(c.slots.slowDeals, true)
	o.Idle = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.aside[deal] == group {
			delete(c.aside, deal)
		}
	}
	group = batch.New(o)
	c.aside[deal] = group
	return group
}

// fits counts only the calls that join, so that many calls for one row do not keep out those behind them.
func (c *coalescer[Q, A]) fits() func(Q) bool {
	calls, size := 0, 0
	rows := make(map[string]struct{})
	return func(query Q) bool {
		bytes := 0
		if c.size != nil {
			bytes = c.size(query)
		}
		if calls == maxGroup || calls > 0 && size+bytes > maxGroupSize {
			return false
		}
		if c.row != nil {
			row := c.row(query)
			if _, taken := rows[row]; taken {
				return false
			}
			rows[row] = struct{}{}
		}
		calls, size = calls+1, size+bytes
		return true
	}
}

// reads returns the field `run` of a coalescer whose statement only reads. The statement gets each
// distinct query once. `scan` sets *n to the position of the row's query in `unique`, counted from
// 1. The answer to a query without a row is nil.
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

// errPanicked is returned when the store's own code panicked, which does not count as an outage.
var errPanicked = errors.New(`store: panic during a statement: see the log message "panic" for the stack`)

// recovered logs a panic and sets *err to errPanicked. Defer recovered directly, because recover
// stops a panic only in the deferred function itself.
func recovered(err *error) {
	if fault := recover(); fault != nil {
		slog.Error("panic", "fault", fault, "stack", string(debug.Stack()))
		*err = errPanicked
	}
}

// retriable reports whether the calls of a failed statement may succeed when each runs separately:
// a call or a conflict made the transaction roll back (a replayed Idempotency-Key, a deadlock).
// After a timeout or a broken connection the outcome is unknown, and a second try could mistake
// the insert of the first try for an insert of another caller.
// The SQLSTATE classes are 22 data exception, 23 constraint violation, and 40 serialization
// failure or deadlock.
func retriable(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23") || strings.HasPrefix(pg.Code, "40"))
}
