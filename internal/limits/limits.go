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
	bodyBytes = 64 << 20         // of all bodies of a room as far as they are small, and again of what large ones have more
	step      = 64 << 10         // bytes that are accounted for at a time; a body with more is large
	stepTime  = 5 * time.Second  // that a step may take to arrive
	bodyTime  = 30 * time.Second // that a whole body may take
	turnTime  = 5 * time.Second  // that large work waits for its turn
)

// CallTime bounds what a call may take, beside what it waits for others.
const CallTime = 35 * time.Second // longer than a body may take, shorter than its answer

// Process holds the bounds of one process.
type Process struct {
	known, strangers room
	turns            *semaphore.Weighted // of large work, on half of the cores: the rest is for all others
	answers          *answers
	stepTime         time.Duration
	bodyTime         time.Duration
}

// room is what the bodies of parties, or of all others, may take together:
// strangers push out no party that reveals. Small bodies take no turn, so that
// large ones push out none of them.
type room struct {
	small *semaphore.Weighted // bytes: the first step of each body, as it arrives
	large *semaphore.Weighted // bytes: the further steps of large ones, so that these push out no small one
	turns *semaphore.Weighted // of large bodies that are read as JSON
}

// New makes the bounds of one process.
func New() *Process {
	half := max(1, int64(runtime.GOMAXPROCS(0))/2)
	bytes := func() *semaphore.Weighted { return semaphore.NewWeighted(bodyBytes) }
	return &Process{
		known: room{bytes(), bytes(), semaphore.NewWeighted(half)}, strangers: room{bytes(), bytes(), semaphore.NewWeighted(half)},
		turns: semaphore.NewWeighted(half), answers: newAnswers(answerBytes), stepTime: stepTime, bodyTime: bodyTime,
	}
}

// Call is one request under the bounds.
type Call struct {
	of      *Process
	network string // of the client
	mu      sync.Mutex
	// turn is where the call holds a turn, nil where it has none. After the end it
	// gets none. Both are guarded by mu.
	turn  *semaphore.Weighted
	ended bool
	body  *body
	// answer is how many bytes the call holds for its answer, guarded by mu.
	answer int64
}

type callKey struct{}

// Begin accounts for a request from now on: its body as far as it is read, and its
// turn. End MUST be called when it is answered. A body that is refused fails its
// reader with a problem.Error. A stranger has shown no credential before its body
// is read, or one that anybody gets for nothing. The network is the client's, see
// caller.Network.
func (p *Process) Begin(w http.ResponseWriter, r *http.Request, network string, stranger bool) (*Call, *http.Request) {
	c := &Call{of: p, network: network}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	if r.Body != nil && r.Body != http.NoBody {
		in := &p.known
		if stranger {
			in = &p.strangers
		}
		c.body = &body{ReadCloser: r.Body, call: c, in: in, ctx: r.Context(), conn: http.NewResponseController(w), whole: r.ContentLength, until: time.Now().Add(p.bodyTime)}
		r.Body = c.body
	}
	return c, r
}

// Turn waits until the call may do large work, at most a few seconds. The turn
// ends when its answer begins to be written, since a client may read slowly. Take
// it for the processor, and to have much read from the database; see Rest. Without
// a call in ctx there is nothing to wait for.
func Turn(ctx context.Context) error {
	c, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		return nil
	}
	return c.take(ctx, c.of.turns)
}

// Wait lets go of what the call in ctx holds, its turn and its body, before it
// waits for others. The body MUST have been read.
func Wait(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		c.Written()
	}
}

// Rest ends the turn of the call in ctx before it asks another server; Turn gets it
// another one.
func Rest(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.rest()
	}
}

func (c *Call) rest() {
	if c.turn != nil {
		c.turn.Release(1)
		c.turn = nil
	}
}

func (c *Call) take(ctx context.Context, turns *semaphore.Weighted) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn != nil || c.ended {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	if turns.Acquire(waiting, 1) != nil {
		return problem.New(problem.Overloaded, "too many large requests are being answered at the moment; send the same request again in a few seconds").After(2)
	}
	c.turn = turns
	return nil
}

// Written ends the call's turn, and lets go of its body.
func (c *Call) Written() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest()
	if c.body != nil {
		c.body.release()
	}
}

// End ends the call.
func (c *Call) End() {
	c.Written()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.of.answers.release(c.network, c.answer)
	c.answer = 0
}

// body is a body as it arrives.
type body struct {
	io.ReadCloser
	call  *Call
	in    *room
	ctx   context.Context
	conn  *http.ResponseController
	until time.Time // it has arrived, or is cut

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
			if !b.in.large.TryAcquire(step) {
				return 0, errBytes
			}
			b.large += step
			end += step
		}
		deadline := time.Now().Add(b.call.of.stepTime)
		if deadline.After(b.until) {
			deadline = b.until
		}
		_ = b.conn.SetReadDeadline(deadline) // a writer without a connection has none
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), max(end-b.read, 1))])
	b.read += int64(n)
	if b.read <= step {
		if !b.in.small.TryAcquire(int64(n)) {
			return 0, errBytes
		}
		b.small += int64(n)
	}
	if err == io.EOF {
		b.ended = true
		if b.read > step { // what it costs to read JSON grows with it
			if refused := b.call.take(b.ctx, b.in.turns); refused != nil {
				return n, refused
			}
		}
	}
	return n, err
}

var errBytes = problem.New(problem.Overloaded, "too many bytes are being sent to this service at the moment; send the same request again in a few seconds").After(2)

func (b *body) release() {
	b.in.small.Release(b.small)
	b.in.large.Release(b.large)
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
