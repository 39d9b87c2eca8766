// Package limits bounds what all callers together can make one process hold and
// compute, whoever they are: the bytes of bodies in memory, how slowly a body may
// arrive, and how much large work is done at once. What one caller may take in a
// minute is package caller's.
package limits

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairpact/fairpact/internal/problem"
)

const (
	bodyBytes = 64 << 20        // of all bodies in memory as far as they are small, and again of what large ones have more
	step      = 64 << 10        // bytes that are accounted for at a time; a body with more is large
	stepTime  = 5 * time.Second // that a step may take to arrive
	turnTime  = 5 * time.Second // that large work waits for its turn
)

// Process holds the bounds of one process.
type Process struct {
	small    *semaphore.Weighted // bytes: the first step of each body, as it arrives
	large    *semaphore.Weighted // bytes: the further steps of large ones, so that these push out no small one
	turns    *semaphore.Weighted // of large work, on half of the cores: the rest is for all others
	stepTime time.Duration
}

// New makes the bounds of one process.
func New() *Process {
	return &Process{semaphore.NewWeighted(bodyBytes), semaphore.NewWeighted(bodyBytes), semaphore.NewWeighted(max(1, int64(runtime.GOMAXPROCS(0))/2)), stepTime}
}

// Call is one request under the bounds.
type Call struct {
	of *Process
	mu sync.Mutex
	// turn, guarded by mu, is whether the call holds a turn.
	turn bool
	body *body
}

type callKey struct{}

// Begin accounts for a request from now on: its body as far as it is read, and its
// turn. End MUST be called when it is answered. A body that is refused fails its
// reader with a problem.Error.
func (p *Process) Begin(w http.ResponseWriter, r *http.Request) (*Call, *http.Request) {
	c := &Call{of: p}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	if r.Body != nil && r.Body != http.NoBody {
		c.body = &body{ReadCloser: r.Body, call: c, ctx: r.Context(), conn: http.NewResponseController(w), whole: r.ContentLength}
		r.Body = c.body
	}
	return c, r
}

// Turn waits until the call may do large work, at most a few seconds. The turn
// ends when its answer begins to be written: a client may read slowly. Without a
// call in ctx there is nothing to wait for.
func Turn(ctx context.Context) error {
	c, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	if c.of.turns.Acquire(waiting, 1) != nil {
		return problem.New(problem.Overloaded, "too many large requests are being answered at the moment; send the same request again in a few seconds").After(2)
	}
	c.turn = true
	return nil
}

// Written ends the call's turn, if it has one.
func (c *Call) Written() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn {
		c.turn = false
		c.of.turns.Release(1)
	}
}

// End ends the call.
func (c *Call) End() {
	c.Written()
	if c.body != nil {
		c.body.release()
	}
}

// body is a body as it arrives.
type body struct {
	io.ReadCloser
	call *Call
	ctx  context.Context
	conn *http.ResponseController

	whole int64 // bytes that the request says there are; -1: it does not say
	read  int64 // bytes
	small int64 // bytes held of the first step, all that was read of it
	large int64 // bytes held of further steps; read <= step + large
	ended bool
}

// Read reads at most to the end of a step.
func (b *body) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	end := step + b.large
	if b.read == 0 || b.read == end {
		if b.read == end && b.read != b.whole {
			if !b.call.of.large.TryAcquire(step) {
				return 0, errBytes
			}
			b.large += step
			end += step
		}
		_ = b.conn.SetReadDeadline(time.Now().Add(b.call.of.stepTime)) // a writer without a connection has none
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), max(end-b.read, 1))])
	b.read += int64(n)
	if b.read <= step {
		if !b.call.of.small.TryAcquire(int64(n)) {
			return 0, errBytes
		}
		b.small += int64(n)
	}
	if err == io.EOF {
		b.ended = true
		// The server watches the connection while the request is answered: with the
		// last step's deadline it would take it for closed.
		_ = b.conn.SetReadDeadline(time.Time{})
		if b.read > step { // what it costs to read JSON grows with it
			if refused := Turn(b.ctx); refused != nil {
				return n, refused
			}
		}
	}
	return n, err
}

var errBytes = problem.New(problem.Overloaded, "too many bytes are being sent to this service at the moment; send the same request again in a few seconds").After(2)

func (b *body) release() {
	b.call.of.small.Release(b.small)
	b.call.of.large.Release(b.large)
	b.small, b.large, b.ended = 0, 0, true
}

// ReadAll reads a body of at most limit bytes. A small one takes memory once; a
// large one as it arrives, since its sender may stop.
func ReadAll(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var all bytes.Buffer
	all.Grow(int(min(max(r.ContentLength, 0), limit, step)) + bytes.MinRead)
	_, err := all.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	return all.Bytes(), err
}
