package store

import (
	"context"
	"errors"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

const (
	maxGroup     = 512     // calls of one statement
	maxGroupSize = 1 << 20 // bytes of one statement's arguments, unless a single call has more
	lanes        = 2       // one group is on its way to the disk while the next one fills
	slowDeals    = 4       // that may wait for a lock at once, each on a connection of its own
	groupTimeout = 20 * time.Second
)

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/store")

// coalescer runs the calls that wait at the same moment, of any deals, as one
// statement: the round trips, wakeups and flushes of one serve all. Nothing
// waits for a timer, so a lone call goes at once.
//
// Calls of one deal go to one lane, in order. Where a statement skipped a deal
// because another transaction holds its row, that deal's calls wait for it
// together, aside: a slow deal holds up no other.
type coalescer[Q, A any] struct {
	// run executes the calls in one transaction and one round trip and returns an
	// answer for each. wait says to wait for locks instead of skipping; the calls
	// are then of one deal.
	run     func(ctx context.Context, calls []Q, wait bool) ([]A, error)
	deal    func(Q) string // whose lane and lock a call needs
	size    func(Q) int    // bytes; nil: not worth counting
	skipped func(A) bool   // nil: the statement takes no locks

	queues [lanes]chan *call[Q, A]
	seed   maphash.Seed
	stop   context.CancelFunc
	loops  sync.WaitGroup

	mu sync.Mutex
	// aside holds, guarded by mu, the calls of each deal that somebody waits for
	// aside. A deal is a key as long as its goroutine runs.
	aside map[string][]*call[Q, A]
	slots chan struct{} // one for each deal that waits
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
func (c *coalescer[Q, A]) start() *coalescer[Q, A] {
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.seed = stop, maphash.MakeSeed()
	c.aside, c.slots = make(map[string][]*call[Q, A]), make(chan struct{}, slowDeals)
	for i := range c.queues {
		queue := make(chan *call[Q, A], 4*maxGroup)
		c.queues[i] = queue
		c.loops.Go(func() { c.serve(ctx, queue) })
	}
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
	case c.queues[maphash.String(c.seed, c.deal(query))%lanes] <- one:
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

func (c *coalescer[Q, A]) serve(ctx context.Context, queue chan *call[Q, A]) {
	var next *call[Q, A]
	for {
		if next == nil {
			select {
			case <-ctx.Done():
				return
			case next = <-queue:
			}
		}
		var group []*call[Q, A]
		group, next = c.drain(queue, next)
		c.execute(ctx, group, false)
	}
}

// drain takes what waits now. rest is a call that is too large for this group.
func (c *coalescer[Q, A]) drain(queue chan *call[Q, A], first *call[Q, A]) (group []*call[Q, A], rest *call[Q, A]) {
	group = []*call[Q, A]{first}
	size := c.bytes(first)
	for len(group) < maxGroup {
		select {
		case next := <-queue:
			if size += c.bytes(next); size > maxGroupSize {
				return group, next
			}
			group = append(group, next)
		default:
			return group, nil
		}
	}
	return group, nil
}

func (c *coalescer[Q, A]) bytes(one *call[Q, A]) int {
	if c.size == nil {
		return 0
	}
	return c.size(one.query)
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
	bounded, cancel := context.WithTimeout(trace.ContextWithSpan(ctx, group[0].span), groupTimeout) // one trace shows the statements
	answers, err := c.run(bounded, queries, wait)
	cancel()
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
		for i, one := range group {
			if c.skipped != nil && !wait && c.skipped(answers[i]) {
				c.putAside(ctx, one)
				continue
			}
			one.done <- outcome[A]{answer: answers[i]}
		}
	}
}

// retriable reports whether the transaction was rolled back for a reason that a
// call alone may not meet.
func retriable(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "23505" || strings.HasPrefix(pg.Code, "40"))
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
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	for {
		c.mu.Lock()
		group := c.aside[deal]
		if len(group) == 0 {
			delete(c.aside, deal)
			c.mu.Unlock()
			return
		}
		c.aside[deal] = nil
		c.mu.Unlock()
		for len(group) > 0 {
			n := min(len(group), maxGroup)
			c.execute(ctx, group[:n], true)
			group = group[n:]
		}
	}
}
