// Package limits bounds what one process holds and computes for all its callers together:
//   - the bytes of request bodies and of answers in memory;
//   - the time that a body takes to arrive;
//   - the number of large bodies that one network sends at the same time;
//   - the number of calls that do large work at the same time;
//   - the open connections.
//
// A body or an answer of more than 64 KiB (step) is large. Each client's network has a fixed number
// of places (networkBodies), and each large body of the network occupies one place. Each process has
// a fixed number of slots. A call acquires a slot before it parses a large body or does other large
// work: a long computation, or a large read from the database.
//
// Policy bounds what one caller may use in a minute.
package limits

import (
	"context"
	"math"
	"net/http"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	bodyBytes = 64 << 20 // capacity of pool.small and of pool.large each, in bytes
	// networkBodies is how many large bodies one network may send at the same time. A further one
	// waits after its first 64 KiB. So one client cannot use all the memory for bodies, or keep all
	// cores busy with reading.
	networkBodies = 8
	step          = 64 << 10        // a longer body or answer is large; a large body is admitted in steps of this many bytes
	stepTime      = 5 * time.Second // longest time for each 64 KiB (step) of a body to arrive
	bodyTime      = timelimits.Body
	slotTimeout   = 5 * time.Second       // longest wait for a slot, or for a place of a network (networkBodies)
	maxPause      = 50 * time.Millisecond // longest pause between the parsing of a large body and the release of its slot
)

// Process bounds the memory for bodies and answers, the concurrent large work, and the time to
// read a body, for one process.
type Process struct {
	parties, strangers pool
	// slots has one slot for each call that does large work (see AcquireSlot). The number of slots is
	// half the number of cores, so that other calls find idle cores.
	slots    *semaphore.Weighted
	answers  *Shares // bytes of large answers
	stepTime time.Duration
	bodyTime time.Duration
}

// pool holds the limits on the request bodies of one class of callers. Callers without an invite
// token (strangers) have separate limits, so that they cannot keep a party from revealing. In an
// MCP call the token is inside the body, so all MCP bodies count as bodies of strangers.
type pool struct {
	small  *semaphore.Weighted // bytes of the first 64 KiB (step) of each body
	large  *semaphore.Weighted // bytes after the first 64 KiB; separate, so that large bodies cannot block small ones
	slots  *semaphore.Weighted // large bodies that are parsed as JSON at the same time
	places *Shares             // large bodies that one network sends at the same time
}

// New returns the bounds of one process.
func New() *Process {
	half := max(1, int64(runtime.GOMAXPROCS(0))/2)
	newPool := func() pool {
		return pool{semaphore.NewWeighted(bodyBytes), semaphore.NewWeighted(bodyBytes), semaphore.NewWeighted(half), NewShares(math.MaxInt64, networkBodies)}
	}
	return &Process{
		parties: newPool(), strangers: newPool(), slots: semaphore.NewWeighted(half),
		answers: newAnswers(answerBytes), stepTime: stepTime, bodyTime: bodyTime,
	}
}

// Call is one request and the resources that it holds.
type Call struct {
	process *Process
	network string
	body    *body // nil: the request has none

	mu sync.Mutex
	// mu guards the fields below.
	slot   *semaphore.Weighted // semaphore of the slot that the call holds for large work; nil: none
	began  time.Time           // when the call acquired the slot
	answer int64               // bytes counted for the answer
	ended  bool
}

type callKey struct{}

func callIn(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Begin starts the call of a request and returns the request with a bounded body. If a bound
// is exceeded, reading this body returns a problem.Error. The caller MUST call End when the
// request is answered. `network` is the client's network from Network.
func (p *Process) Begin(w http.ResponseWriter, r *http.Request, network string) (*Call, *http.Request) {
	c := &Call{process: p, network: network}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	if r.Body != nil && r.Body != http.NoBody {
		c.body = &body{ReadCloser: r.Body, call: c, pool: &p.strangers, ctx: r.Context(), conn: http.NewResponseController(w), size: r.ContentLength, until: time.Now().Add(p.bodyTime), end: step}
		r.Body = c.body
	}
	return c, r
}

// Party counts the body of the call in ctx against the limits for callers with an invite token. Call
// Party before the body is read, and only if the invite token belongs to the deal. An API key is not
// enough, because anyone can get one.
func Party(ctx context.Context) {
	if c := callIn(ctx); c != nil && c.body != nil {
		c.body.pool = &c.process.parties
	}
}

// AcquireSlot waits until the call in ctx gets one of the process's few slots for large work: a long
// computation, or a large read from the database. After 5 s (slotTimeout), AcquireSlot returns a
// problem.Error. ReleaseSlot and ReleaseForWait release the slot. The slot is released at the latest
// when the answer begins, because the client may read the answer slowly.
func AcquireSlot(ctx context.Context) error {
	c := callIn(ctx)
	if c == nil {
		return nil
	}
	return c.acquireSlot(ctx, c.process.slots)
}

// ReleaseForWait releases the slot for large work (see AcquireSlot) and the memory for the request
// body that the call in ctx holds. Call ReleaseForWait before the call waits for other parties. The
// body MUST have been read.
func ReleaseForWait(ctx context.Context) {
	if c := callIn(ctx); c != nil {
		c.ReleaseSlotAndBody()
	}
}

// ReleaseSlot releases the slot for large work that the call in ctx holds. Call ReleaseSlot before a
// request to another server, and call AcquireSlot again before more large work.
func ReleaseSlot(ctx context.Context) {
	if c := callIn(ctx); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.releaseSlot()
	}
}

func (c *Call) releaseSlot() {
	slot := c.slot
	switch {
	case slot == nil:
		return
	case slot == c.process.slots:
		slot.Release(1)
	default:
		// The slot was for a large body. Another large body can acquire the slot only after a
		// pause, so that small calls find an idle core. The pause is as long as the call held the
		// slot, but at most maxPause.
		time.AfterFunc(min(time.Since(c.began), maxPause), func() { slot.Release(1) })
	}
	c.slot = nil
}

func (c *Call) acquireSlot(ctx context.Context, slots *semaphore.Weighted) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slot != nil || c.ended {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	if slots.Acquire(waiting, 1) != nil {
		return problem.New(problem.Overloaded, "too many large requests are being answered at the moment; send the same request again in a few seconds").WithRetryAfter(2)
	}
	c.slot, c.began = slots, time.Now()
	return nil
}

// ReleaseSlotAndBody releases the slot for large work and the memory for the request body that the
// call holds. Call ReleaseSlotAndBody when the answer begins.
func (c *Call) ReleaseSlotAndBody() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseSlot()
	if c.body != nil {
		c.body.release()
	}
}

// End releases all memory and slots that the call holds. After End the call can acquire no more.
func (c *Call) End() {
	c.ReleaseSlotAndBody()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.process.answers.Release(c.network, c.answer)
	c.answer = 0
}
