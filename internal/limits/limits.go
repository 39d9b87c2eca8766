// Package limits bounds what one process holds and computes for all its callers together:
//   - the bytes of request bodies and of answers in memory;
//   - the time that a body takes to arrive, and the large bodies of one network;
//   - the large work that runs at the same time;
//   - the open connections.
//
// Package caller bounds what one caller may use in a minute.
package limits

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairpact/fairpact/internal/problem"
)

const (
	bodyBytes = 64 << 20              // bytes in room.small, and as many in room.large
	step      = 64 << 10              // bytes counted at a time; a longer body or answer is large
	stepTime  = 5 * time.Second       // for one step to arrive
	bodyTime  = 30 * time.Second      // for a whole body to arrive
	turnTime  = 5 * time.Second       // for a call to wait for its turn, or for its network's place
	maxPause  = 50 * time.Millisecond // longest pause after a turn to parse a large body
)

// CallTime bounds a call. Time spent waiting for other parties does not count. It is
// longer than bodyTime and shorter than the server's write timeout.
const CallTime = 35 * time.Second

// Process holds the bounds of one process.
type Process struct {
	parties, strangers room
	turns              *semaphore.Weighted // calls that do large work; half of the cores stay free for other calls
	answers            *answers
	stepTime           time.Duration
	bodyTime           time.Duration
}

// room bounds the bodies of one class of callers. Callers without an invite token have
// their own room (strangers), so that they cannot keep a party from revealing. Over MCP
// all bodies count in the room of strangers, because the token is in the body.
type room struct {
	small   *semaphore.Weighted // bytes for the first step of each body
	large   *semaphore.Weighted // bytes for further steps; separate, so that large bodies cannot block small ones
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

// Call is one request and the resources that it holds.
type Call struct {
	process *Process
	network string
	body    *body // nil: the request has none

	mu sync.Mutex
	// mu guards the fields below.
	turn   *semaphore.Weighted // the semaphore that the call holds; nil: none
	began  time.Time           // when the turn began
	answer int64               // bytes
	ended  bool
}

type callKey struct{}

func callIn(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Begin starts the call of a request. The caller MUST call End when the request is
// answered. Reading the body of the returned request returns a problem.Error if the body
// exceeds a bound. network is the result of caller.Network for the client.
func (p *Process) Begin(w http.ResponseWriter, r *http.Request, network string) (*Call, *http.Request) {
	c := &Call{process: p, network: network}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	if r.Body != nil && r.Body != http.NoBody {
		c.body = &body{ReadCloser: r.Body, call: c, room: &p.strangers, ctx: r.Context(), conn: http.NewResponseController(w), size: r.ContentLength, until: time.Now().Add(p.bodyTime), end: step}
		r.Body = c.body
	}
	return c, r
}

// Party counts the body of the call in ctx in the room of parties. Call it before the
// body is read, and only for a caller with an invite token of the deal. An API key is
// not enough, because anyone can get one.
func Party(ctx context.Context) {
	if c := callIn(ctx); c != nil && c.body != nil {
		c.body.room = &c.process.parties
	}
}

// Turn waits until the call in ctx may do large work: use the processor for long or read
// much from the database. After turnTime it returns a problem.Error. The turn ends when
// the answer begins to be written, because a client may read slowly. See also Rest.
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

// Rest ends the turn of the call in ctx. Use it before a request to another server. Call
// Turn again before more large work.
func Rest(ctx context.Context) {
	if c := callIn(ctx); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.rest()
	}
}

func (c *Call) rest() {
	turn := c.turn
	switch {
	case turn == nil:
		return
	case turn == c.process.turns:
		turn.Release(1)
	default: // the next body waits as long as the parsing took, at most maxPause, so that small calls find an idle core
		time.AfterFunc(min(time.Since(c.began), maxPause), func() { turn.Release(1) })
	}
	c.turn = nil
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
	c.turn, c.began = turns, time.Now()
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

// End releases everything that the call holds. After End the call can take nothing.
func (c *Call) End() {
	c.Written()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.process.answers.release(c.network, c.answer)
	c.answer = 0
}
