// Package limits bounds what one process holds and computes for all its callers together:
//   - the bytes of bodies and answers, and the time that a body takes to arrive;
//   - places: the large bodies (over 64 KiB) that one network sends at the same time;
//   - slots: the calls that parse a large body, compute for long or read much from the database
//     at the same time;
//   - the open connections.
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
	bodyBytes     = 64 << 20        // capacity of pool.small and of pool.large each, in bytes
	networkBodies = 8               // places of a network; a further large body waits after its first step
	step          = 64 << 10        // a longer body or answer is large; a large body is admitted in steps of this many bytes
	stepTime      = 5 * time.Second // longest time for each 64 KiB (step) of a body to arrive
	bodyTime      = timelimits.Body
	slotTimeout   = 5 * time.Second       // longest wait for a slot, or for a place of a network (networkBodies)
	maxPause      = 50 * time.Millisecond // longest pause between the parsing of a large body and the release of its slot
	answerBytes   = 128 << 20             // bound of all large answers together
	networkShare  = 4                     // a network may use answerBytes/networkShare
)

// Process has the bounds of one process.
type Process struct {
	parties, strangers pool
	slots              *semaphore.Weighted // half the number of cores, so that other calls find idle cores
	answers            *Shares             // bytes of large answers
	stepTime           time.Duration
	bodyTime           time.Duration
}

// pool bounds the bodies of one class of callers. Strangers (without an invite token) have a pool
// of their own, so that they cannot keep a party from revealing. An MCP call has the token in its
// body, so it counts as a stranger's.
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
	slot   *semaphore.Weighted // which slots the call holds one of; nil: none
	began  time.Time           // when the call acquired the slot
	answer int64               // bytes counted for the answer
	ended  bool
}

type callKey struct{}

func callIn(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Begin starts the call of a request from a network (see Network), and returns the request with
// a bounded body. Reading the body returns a problem.Error at a bound. The caller MUST call End.
func (p *Process) Begin(w http.ResponseWriter, r *http.Request, network string) (*Call, *http.Request) {
	c := &Call{process: p, network: network}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	if r.Body != nil && r.Body != http.NoBody {
		c.body = &body{ReadCloser: r.Body, call: c, pool: &p.strangers, ctx: r.Context(), conn: http.NewResponseController(w), size: r.ContentLength, until: time.Now().Add(p.bodyTime), end: step}
		r.Body = c.body
	}
	return c, r
}

// Party moves the call in ctx from the strangers' pool to the parties'. Call Party before the body
// is read, and only for an invite token of the deal: anyone can get an API key.
func Party(ctx context.Context) {
	if c := callIn(ctx); c != nil && c.body != nil {
		c.body.pool = &c.process.parties
	}
}

// AcquireSlot waits for a slot for the call in ctx, or returns a problem.Error after slotTimeout.
// The call gives it back with ReleaseSlot or ReleaseForWait, at the latest when the answer begins,
// because the client may read slowly.
func AcquireSlot(ctx context.Context) error {
	c := callIn(ctx)
	if c == nil {
		return nil
	}
	return c.acquireSlot(ctx, c.process.slots)
}

// ReleaseForWait releases the slot and the body of the call in ctx before it waits for other
// parties. The body MUST have been read.
func ReleaseForWait(ctx context.Context) {
	if c := callIn(ctx); c != nil {
		c.ReleaseSlotAndBody()
	}
}

// ReleaseSlot releases the slot of the call in ctx, for example before a request to another server.
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
		// The slot was for a large body. A pause as long as the call held the slot lets small calls
		// find an idle core.
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

// ReleaseSlotAndBody is for when the answer begins.
func (c *Call) ReleaseSlotAndBody() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseSlot()
	if c.body != nil {
		c.body.release()
	}
}

// End releases all that the call holds. After End the call can acquire no more.
func (c *Call) End() {
	c.ReleaseSlotAndBody()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.process.answers.Release(c.network, c.answer)
	c.answer = 0
}

func newAnswers(most int64) *Shares { return NewShares(most, most/networkShare) }

// Answer counts the bytes of a large answer until the call in ctx ends, or returns a
// problem.Error. A call whose effect cannot be repeated first passes an estimate, because a
// refusal after the effect would lose the answer. Then Answer counts only the bytes above it.
func Answer(ctx context.Context, bytes int) error {
	c := callIn(ctx)
	if c == nil || bytes <= step {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	more := int64(bytes) - c.answer
	if more <= 0 || c.ended {
		return nil
	}
	switch c.process.answers.Take(c.network, c.answer, more) {
	case ErrShare:
		return problem.New(problem.Overloaded, "your network is still reading other large answers; read them to their end and send the same request again in a few seconds").WithRetryAfter(2)
	case ErrTotal:
		return problem.New(problem.Overloaded, "too many large answers are being sent at the moment; send the same request again in a few seconds").WithRetryAfter(2)
	}
	c.answer += more
	return nil
}
