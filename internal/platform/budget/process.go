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
	// MaxSmall is the largest ticket of a small call.
	MaxSmall = 64 << 10
	// Object and Value are what a JSON object and any JSON value of a body take as a tree. Its
	// strings take as many bytes as in the text.
	Object, Value = 350, 100

	smallCalls   = 24 << 20  // least for the small calls of parties, and for those of others
	largest      = 56 << 20  // a submitted certificate with canon.MaxValues values
	code         = 64 << 20  // code, stacks and pools
	caches       = 48 << 20  // of package escrow
	connection   = 20_000    // buffers and stacks of a connection
	defaultLimit = 576 << 20 // if the process has no memory limit

	defaultConnections = 8192

	workerSmall = 4 << 20
	workerWait  = 10 * time.Second // half of what a deal has: two that grow could wait for each other if Growth is small
	logUnsent   = 32 << 20

	// Largest is the most that a Process can always grant to a single call.
	Largest = largest
)

// Process holds the budgets of a process. In pairs of them, the first is of strangers, and the second of
// calls with an invite token of the deal.
type Process struct {
	small [2]*Budget     // bytes of calls that hold at most MaxSmall
	large *Budget        // bytes of the others
	turns [2]*Budget     // calls that compute at the same time
	long  [2]*Budget     // long computations at the same time
	ones  [kinds]*Budget // see Call.One
}

// Kind is what Call.One bounds.
type Kind int

const (
	Lookup     Kind = iota // of an unknown credential: strangers do not fill the queue of statements
	NewKey                 // an API key that is stored, and
	PublicDeal             // a public deal that is read: with a statement of their own, strangers do not fill the connections to the database
	LargeRead              // a statement that reads more than a small call, and
	LargeWrite             // one that writes as much: parties do not wait behind what strangers read
	kinds
)

// atOnce is how many calls may have one of a kind at the same time.
var atOnce = [kinds]int64{Lookup: 256, NewKey: 2, PublicDeal: 2, LargeRead: 1, LargeWrite: 1}

func newOnes(wait time.Duration) (ones [kinds]*Budget) {
	for k, n := range atOnce {
		ones[k] = New(Options{Size: n, Wait: wait})
	}
	return ones
}

const (
	wait     = 10 * time.Second // longest wait for a ticket: a burst of readers of a large deal took over 5 s on a busy machine
	longWait = 20 * time.Second // longest wait for a turn to compute: a call that waits already holds its memory, and would come again
)

// cores is what GOMAXPROCS was before NewProcess.
var cores = runtime.GOMAXPROCS(0)

// NewProcess returns the budgets of a process that has at most `connections` connections. They
// follow from the memory limit of the process (GOMEMLIMIT, or that of its container). NewProcess
// fails if the limit is too low for the largest call. It raises GOMAXPROCS.
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
	small := max(smallCalls, tickets/6)
	shared := tickets - 2*small
	if shared < largest {
		return nil, fmt.Errorf("the memory limit of %d MiB is too low for %d connections: raise it (or GOMEMLIMIT) by at least %d MiB", limit>>20, connections, (largest-shared)*16/10>>20+1)
	}
	of := func(size int64) *Budget { return New(Options{Size: size, Wait: wait}) }
	turnsOf := func(n int) [2]*Budget {
		o := Options{Size: int64(n), Wait: longWait, Lease: true}
		return [2]*Budget{New(o), New(o)}
	}
	long := max(1, cores/4)
	// While all threads of the scheduler compute, Go asks the network for news only every 10 ms. So
	// there is one more of them than cores, and the kernel shares the cores between them. Still more
	// leave less to each short turn: with three more on one core, a party's call beside large bodies of
	// others took 25 ms instead of 13.
	runtime.GOMAXPROCS(cores + 1)
	return &Process{
		small: [2]*Budget{of(small), of(small)}, large: New(Options{Size: shared, Wait: wait, Growth: growth(shared)}),
		turns: turnsOf(cores), long: turnsOf(long), ones: newOnes(wait),
	}, nil
}

// growth returns Options.Growth: enough for each call that grows, unless that is more than a quarter.
func growth(shared int64) int64 { return min(largest, shared-largest, shared/4) }

// unlimited grants everything.
var unlimited = func() *Process {
	all := New(Options{Size: math.MaxInt64})
	p := &Process{small: [2]*Budget{all, all}, large: all, turns: [2]*Budget{all, all}, long: [2]*Budget{all, all}}
	for k := range p.ones {
		p.ones[k] = all
	}
	return p
}()

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
	of := func(size int64) *Budget { return New(Options{Size: size}) }
	one := func() [2]*Budget { return [2]*Budget{of(1), of(1)} }
	return &Process{small: [2]*Budget{of(workerSmall), of(0)}, large: New(Options{Size: shared, Growth: growth(shared), Wait: workerWait}), turns: one(), long: one(), ones: newOnes(0)}, nil
}

// NewLog returns the budgets of log-server, whose calls are small: only answers that clients do not take
// add up.
func NewLog() *Process { return &Process{large: New(Options{Size: logUnsent})} }

// Held returns the bytes of all small calls, and of the others.
func (p *Process) Held() (small, large int64) {
	return p.small[0].Held() + p.small[1].Held(), p.large.Held()
}
