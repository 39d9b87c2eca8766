package budget

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"time"
)

// Sizes in bytes.
const (
	// SmallBody is the largest body that is read without a ticket: its connection counts it.
	SmallBody = 4 << 10
	// SmallCall is the ticket of a small call over REST, with its answer. One over MCP takes MaxSmall.
	SmallCall = 32 << 10
	// MaxSmall is the largest ticket of Party and Other. A larger one is in Large.
	MaxSmall = 64 << 10
	// Object and Value are what a JSON object and any JSON value of a body take as a tree. Its
	// strings take as many bytes as in the text.
	Object, Value = 350, 100

	smallCalls   = 24 << 20  // part of Party, and of Other
	work         = 48 << 20  // a submitted certificate with canon.MaxValues values
	largest      = 26 << 20  // a certificate of 10,000 parties over MCP
	code         = 64 << 20  // code, stacks and pools
	caches       = 48 << 20  // of package escrow
	connection   = 20_000    // buffers and stacks of a connection
	lookups      = 256       // share a few statements
	defaultLimit = 576 << 20 // if the process has no memory limit

	defaultConnections = 8192
)

// Process holds the budgets of a process.
type Process struct {
	memory  *Budget // bytes
	turns   *Budget // computations at the same time: half the cores for strangers, half for parties
	lookups *Budget // lookups of unknown credentials at the same time
	reads   *Budget // large reads from the database at the same time
}

func newReads(wait time.Duration) *Budget { return New(Options{Other: 1, Wait: wait}) }

const wait = 5 * time.Second // longest wait for a ticket

// NewProcess returns the budgets of a process that has at most `connections` connections. They
// follow from the memory limit of the process (GOMEMLIMIT, or that of its container). NewProcess
// fails if the limit is too low for the largest call.
func NewProcess(connections int) (*Process, error) {
	if connections <= 0 { // not bounded
		connections = defaultConnections
	}
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = defaultLimit
	}
	// Garbage takes up to 60 % on top of what is held.
	tickets := (limit - code - caches - connection*int64(connections)) * 10 / 16
	shared := tickets - 2*smallCalls - work
	if shared < largest {
		return nil, fmt.Errorf("the memory limit of %d MiB is too low for %d connections: raise it (or GOMEMLIMIT) by at least %d MiB", limit>>20, connections, (largest-shared)*16/10>>20+1)
	}
	turns := max(1, int64(runtime.GOMAXPROCS(0))/2)
	return &Process{
		memory:  New(Options{Party: smallCalls, Other: smallCalls, Work: work, Shared: shared, Wait: wait}),
		turns:   New(Options{Party: turns, Other: turns, Wait: wait}),
		lookups: New(Options{Other: lookups, Wait: wait}),
		reads:   newReads(wait),
	}, nil
}

// Held returns the bytes of all tickets of a lane.
func (p *Process) Held(lane Lane) int64 {
	n, _ := p.memory.Held(lane)
	return n
}
