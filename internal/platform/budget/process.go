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

	workerSmall = 8 << 20
	logUnsent   = 32 << 20

	// Largest is the most that a Process can always grant to a single call.
	Largest = largest
)

// Process holds the budgets of a process. In pairs of them, the first is of strangers, and the second of
// calls with an invite token of the deal.
type Process struct {
	small  [2]*Budget     // bytes of calls that hold at most MaxSmall
	large  *Budget        // bytes of the others
	growth *Budget        // the right to grow to Largest bytes, of one of these at a time (see reserve)
	turns  [2]*Budget     // calls that compute at the same time
	long   [2]*Budget     // long computations at the same time
	ones   [kinds]*Budget // see Call.One
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

const (
	// wait is the longest wait for memory: a burst of readers of a large deal took over 5 s on a busy machine.
	wait = 10 * time.Second
	// turnWait is the longest wait for a turn, and to grow. Who waits for these already holds memory, and would come again.
	turnWait = 20 * time.Second
	// workerWait is the longest wait for memory in deadline-worker, where nobody waits for an answer.
	workerWait = 5 * time.Second
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
	// While all threads of the scheduler compute, Go asks the network for news only every 10 ms. So
	// there is one more of them than cores, and the kernel shares the cores between them. Still more
	// leave less to each short turn: with three more on one core, a party's call beside large bodies of
	// others took 25 ms instead of 13.
	runtime.GOMAXPROCS(cores + 1)
	return newProcess([2]int64{small, small}, shared, int64(cores), wait), nil
}

// newProcess returns the budgets of a process. `shared` is what large calls may hold, and wait the longest
// wait for memory, or for one of a kind.
func newProcess(small [2]int64, shared, turns int64, wait time.Duration) *Process {
	of := func(size int64, wait time.Duration) *Budget { return New(Options{Size: size, Wait: wait}) }
	two := func(size int64) [2]*Budget { return [2]*Budget{of(size, turnWait), of(size, turnWait)} }
	p := &Process{
		small: [2]*Budget{of(small[0], wait), of(small[1], wait)}, large: of(shared-reserve(shared), wait), growth: of(1, turnWait),
		turns: two(turns), long: two(max(1, turns/4)),
	}
	for k, n := range atOnce {
		p.ones[k] = of(n, wait)
	}
	return p
}

// reserve is what large calls keep free for the one that grows. If that is less than it needs, it takes
// the rest of what garbage can take.
func reserve(shared int64) int64 { return min(largest, shared-largest, shared/4) }

// unlimited grants everything.
var unlimited = func() *Process {
	p := newProcess([2]int64{math.MaxInt64, math.MaxInt64}, math.MaxInt64, math.MaxInt64, 0)
	for k := range p.ones {
		p.ones[k] = p.large
	}
	return p
}()

// NewWorker returns the budgets of deadline-worker, which has no clients: each deal counts as a network. A deal that
// waits for memory fails, to be processed later: large deals do not keep out the others.
func NewWorker() (*Process, error) {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = defaultLimit
	}
	shared := (limit-code-caches)*10/16 - workerSmall
	if shared < largest {
		return nil, fmt.Errorf("the memory limit of %d MiB is too low: raise it (or GOMEMLIMIT) by at least %d MiB", limit>>20, (largest-shared)*16/10>>20+1)
	}
	return newProcess([2]int64{workerSmall, 0}, shared, 1, workerWait), nil
}

// NewLog returns the budgets of the public reads of log-server, which are small: only answers that clients do not
// take add up.
func NewLog() *Process {
	all, turns := New(Options{Size: logUnsent, Wait: wait}), New(Options{Size: int64(cores), Wait: turnWait})
	return &Process{small: [2]*Budget{all, all}, large: all, growth: New(Options{Size: 1, Wait: turnWait}), turns: [2]*Budget{turns}}
}

// Held returns the bytes of all small calls, and of the others.
func (p *Process) Held() (small, large int64) {
	return p.small[0].Held() + p.small[1].Held(), p.large.Held()
}
