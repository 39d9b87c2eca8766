package budget

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
)

// Largest is the most that a Process can always grant to a single call, in bytes.
const Largest = largest

const (
	workerSmall = 4 << 20
	logUnsent   = 32 << 20
)

// NewWorker returns the budgets of deadline-worker, which has no clients: each deal counts as a network.
func NewWorker() (*Process, error) {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = defaultLimit
	}
	shared := (limit-code-caches)*10/16 - workerSmall
	if shared < largest {
		return nil, fmt.Errorf("the memory limit of %d MiB is too low: raise it (or GOMEMLIMIT) by at least %d MiB", limit>>20, (largest-shared)*16/10>>20+1)
	}
	return &Process{
		memory: New(Options{Other: workerSmall, Shared: shared}),
		turns:  New(Options{Other: 1}),
		reads:  newReads(0),
	}, nil
}

// NewLog returns the budgets of log-server, whose calls are small: only answers that clients do not take
// add up.
func NewLog() *Process {
	return &Process{memory: New(Options{Shared: logUnsent})}
}

// Read waits for the turn of a large read from the database. One call reads at a time, and the networks
// take turns.
func (c *Call) Read(ctx context.Context) (done func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	t, err := c.process.reads.Take(ctx, Other, c.network, 1)
	if err != nil {
		return nil, overloaded(err)
	}
	return t.Return, nil
}
