// Package limits bounds what one process holds and computes for all its callers together:
//   - the bytes of request bodies and of answers in memory;
//   - the time that a body takes to arrive;
//   - the large work that runs at the same time;
//   - the open connections.
//
// Package caller bounds what one caller may use in a minute.
package limits

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairpact/fairpact/internal/problem"
)

const (
	bodyBytes = 64 << 20         // bytes in a room for the first steps of all bodies, and as many again for their further steps
	step      = 64 << 10         // bytes counted at a time; a longer body or answer is large
	stepTime  = 5 * time.Second  // for one step to arrive
	bodyTime  = 30 * time.Second // for a whole body to arrive
	turnTime  = 5 * time.Second  // how long large work may wait for its turn
)

// CallTime bounds a call, without the time that it waits for other parties. It is
// longer than a body may take to arrive and shorter than the server's write timeout.
const CallTime = 35 * time.Second

// Process holds the bounds of one process.
type Process struct {
	parties, strangers room
	turns              *semaphore.Weighted // calls that do large work, at most half of the cores: the other half serves all other calls
	answers            *answers
	stepTime           time.Duration
	bodyTime           time.Duration
}

// room bounds the bodies of one class of callers. Parties and all other callers
// (strangers) have separate rooms, so that callers without an invite token cannot keep a
// party from revealing over REST. Over MCP the token is in the body, so all bodies count
// in the room of strangers.
type room struct {
	small   *semaphore.Weighted // bytes for the first step of each body
	large   *semaphore.Weighted // bytes for the further steps, counted separately so that large bodies cannot block small ones
	turns   *semaphore.Weighted // large bodies that are parsed as JSON at the same time
	senders *senders
}

// New returns the bounds of one process.
func New() *Process {
	half := max(1, int64(runtime.GOMAXPROCS(0))/2)
	newRoom := func() room {
		return room{semaphore.NewWeighted(bodyBytes), semaphore.NewWeighted(bodyBytes), semaphore.NewWeighted(half), &senders{networks: map[string]*sender{}}}
	}
	return &Process{
		parties: newRoom(), strangers: newRoom(), turns: semaphore.NewWeighted(half),
		answers: newAnswers(answerBytes), stepTime: stepTime, bodyTime: bodyTime,
	}
}

// Call is one request, with the turn and the bytes that it holds.
type Call struct {
	process *Process
	network string // of the client
	body    *body  // nil: the request has none

	mu sync.Mutex
	// mu guards the fields below.
	turn   *semaphore.Weighted // the semaphore that gave the call its turn; nil: the call has no turn
	answer int64               // bytes that the call holds for its answer
	ended  bool                // the call gets no more turns and no more bytes
}

type callKey struct{}

// callIn returns the call of a request's context, nil if there is none.
func callIn(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Begin counts a request until End, which MUST be called when the request is answered.
// Use the returned request: reading its body returns a problem.Error if the body
// exceeds a bound. network is the client's, see caller.Network.
func (p *Process) Begin(w http.ResponseWriter, r *http.Request, network string) (*Call, *http.Request) {
	c := &Call{process: p, network: network}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	if r.Body != nil && r.Body != http.NoBody {
		c.body = &body{ReadCloser: r.Body, call: c, room: &p.strangers, ctx: r.Context(), conn: http.NewResponseController(w), size: r.ContentLength, until: time.Now().Add(p.bodyTime)}
		r.Body = c.body
	}
	return c, r
}

// Party makes the body of the call in ctx count in the room of parties. Use it before the
// body is read, and only if the caller has shown an invite token of the deal. An API key
// is not enough, not even the deal's own, because anyone can get an API key.
func Party(ctx context.Context) {
	if c := callIn(ctx); c != nil && c.body != nil {
		c.body.room = &c.process.parties
	}
}

// Turn waits at most turnTime until the call in ctx may do large work. Large work uses
// the processor for long or reads much from the database. It returns a problem.Error if too
// many calls do large work. The turn ends when the answer begins to be written, because
// a client may read slowly; see also Rest. Without a call in ctx Turn returns nil at
// once.
func Turn(ctx context.Context) error {
	c := callIn(ctx)
	if c == nil {
		return nil
	}
	return c.take(ctx, c.process.turns)
}

// Wait releases the turn and the body of the call in ctx. Use it before the call waits
// for other parties. The body MUST have been read.
func Wait(ctx context.Context) {
	if c := callIn(ctx); c != nil {
		c.Written()
	}
}

// Rest ends the turn of the call in ctx. Use it before the call sends a request to
// another server. Call Turn again to continue with large work.
func Rest(ctx context.Context) {
	if c := callIn(ctx); c != nil {
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

// Written ends the call's turn and releases its body.
func (c *Call) Written() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest()
	if c.body != nil {
		c.body.release()
	}
}

// End releases everything that the call holds. The call gets no more turns and no more
// bytes.
func (c *Call) End() {
	c.Written()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.process.answers.release(c.network, c.answer)
	c.answer = 0
}

type body struct {
	io.ReadCloser
	call  *Call
	room  *room
	ctx   context.Context
	conn  *http.ResponseController
	until time.Time // the deadline for the whole body

	size  int64 // bytes by Content-Length; -1: not known
	read  int64 // bytes
	small int64 // bytes held for the first step
	large int64 // bytes held for further steps; read <= step + large
	place bool  // whether it has one of its network's places for large bodies
	ended bool
}

// Read reads at most to the end of the current step, and counts the bytes. It returns a
// problem.Error if the room is full, or if the network already sends networkBodies large
// bodies.
func (b *body) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	end := step + b.large
	if b.read == 0 || b.read == end {
		if b.read == end && b.read != b.size {
			if err := b.takePlace(); err != nil {
				return 0, err
			}
			if !b.room.large.TryAcquire(step) {
				return 0, errBytes
			}
			b.large += step
			end += step
		}
		deadline := time.Now().Add(b.call.process.stepTime)
		if deadline.After(b.until) {
			deadline = b.until
		}
		_ = b.conn.SetReadDeadline(deadline) // fails only for a ResponseWriter without a connection, in tests
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), max(end-b.read, 1))])
	b.read += int64(n)
	if b.read <= step {
		if !b.room.small.TryAcquire(int64(n)) {
			return 0, errBytes
		}
		b.small += int64(n)
	}
	if err == io.EOF {
		b.ended = true
		if b.read > step { // parsing JSON takes longer the larger it is
			if refused := b.call.take(b.ctx, b.room.turns); refused != nil {
				return n, refused
			}
		}
	}
	return n, err
}

var errBytes = problem.New(problem.Overloaded, "too many bytes are being sent to this service at the moment; send the same request again in a few seconds").After(2)

// takePlace waits at most turnTime for a place of the network, unless the body has one.
func (b *body) takePlace() error {
	if b.place {
		return nil
	}
	waiting, cancel := context.WithTimeout(b.ctx, turnTime)
	defer cancel()
	if b.room.senders.acquire(waiting, b.call.network) != nil {
		return problem.New(problem.Overloaded, "your network is sending %d other large bodies at the moment; send the same request again in a few seconds", networkBodies).After(2)
	}
	b.place = true
	return nil
}

func (b *body) release() {
	if b.place {
		b.room.senders.release(b.call.network)
		b.place = false
	}
	b.room.small.Release(b.small)
	b.room.large.Release(b.large)
	b.small, b.large, b.ended = 0, 0, true
}

// ReadAll reads a body of at most limit bytes. It allocates a small body at once, and
// a large one as it arrives, because the sender may stop. Its errors are
// problem.Errors.
func ReadAll(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var all bytes.Buffer
	all.Grow(int(min(max(r.ContentLength, 0), limit, step)) + bytes.MinRead)
	_, err := all.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, problem.New(problem.BodyTooLarge, "the body is over %d bytes; send a smaller one", limit)
	}
	if refused, ok := errors.AsType[*problem.Error](err); ok {
		return nil, refused
	}
	if err != nil {
		return nil, problem.New(problem.InvalidJSON, "the body ended before it was complete; send it again").Because(err)
	}
	return all.Bytes(), nil
}
