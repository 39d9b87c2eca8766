package budget

import (
	"context"
	"errors"
	"sync"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Call holds the tickets of one call: for what it holds until the client took the answer, and a turn at
// the CPU, which it gives back before each wait. The methods return problem.Errors.
type Call struct {
	process    *Process
	network    string
	connection *Ticket
	closes     func() // the connection

	mu sync.Mutex
	// mu guards the state. No method waits while it holds mu.
	callState
}

type callState struct {
	of    int // 1: a call of a party
	ended bool
	held  *Ticket // bytes
	more  *Ticket // the right to grow to Largest bytes, if it needs more than held
	turn  *Ticket // at the CPU
}

type callKey struct{}

// nobody is the call of a context without one: it has no limits, and keeps no ticket.
var nobody = &Call{process: unlimited, callState: callState{ended: true}}

// Begin returns a context with a call of a client network. The caller MUST call End. The call of a
// nil Process has no limits.
func (p *Process) Begin(ctx context.Context, network string) (context.Context, *Call) {
	if p == nil {
		return ctx, nobody
	}
	c := &Call{process: p, network: network}
	return context.WithValue(ctx, callKey{}, c), c
}

// From returns the call in ctx. If there is none, the call that it returns has no limits.
func From(ctx context.Context) *Call {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return c
	}
	return nobody
}

// Network returns the client network of the call; "" for one that has no limits.
func (c *Call) Network() string { return c.network }

// Connection names the ticket of the client's connection, and what closes that. The ticket may be evicted while the call
// waits for other parties: else calls that wait could fill a port. Call Connection before any other method.
func (c *Call) Connection(t *Ticket, closes func()) {
	if c != nobody {
		c.connection, c.closes = t, closes
	}
}

// Party marks the call as one with an invite token. Call Party before Hold.
func (c *Call) Party() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of = 1
}

func (c *Call) now() callState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.callState
}

// Hold takes a ticket for n bytes before the call holds that much. If it must wait, it gives back its
// turn meanwhile. It keeps a large ticket while it waits, and gives back a small one.
func (c *Call) Hold(ctx context.Context, n int64) error {
	now := c.now()
	if now.held != nil && now.held.Units() >= n || now.more != nil && n <= Largest || c.hold(ended, n) == nil {
		return nil
	}
	c.Rest() // who has a turn may wait for those who wait for one
	err := c.hold(ctx, n)
	if err == nil && now.turn != nil {
		err = c.take(ctx, now.turn.budget, 1, &c.turn)
	}
	return err
}

func (c *Call) hold(ctx context.Context, n int64) error {
	now := c.now()
	switch {
	case now.held != nil && now.held.budget == c.process.large: // kept, because its bytes are in use
		if now.held.Resize(n) {
			return nil
		}
		if n > Largest {
			return overloaded(ErrNever)
		}
		return c.take(ctx, c.process.growth, 1, &c.more)
	case n <= MaxSmall:
		c.giveBack(&c.held)
		return c.take(ctx, c.process.small[now.of], n, &c.held)
	}
	c.giveBack(&c.held)
	return c.take(ctx, c.process.large, n, &c.held)
}

// Parse counts a body that the call holds with its tree, in bytes, and waits for a turn, before it is
// parsed.
func (c *Call) Parse(ctx context.Context, body int, tree int64) error {
	err := c.Hold(ctx, SmallCall+int64(body)+tree)
	if err == nil {
		err = c.Turn(ctx)
	}
	return err
}

// Large reports whether the call holds more than a small one. It MUST NOT wait for another call then.
func (c *Call) Large() bool {
	now := c.now()
	return now.more != nil || now.held.Units() > MaxSmall
}

// take waits for a ticket. It returns the ticket at once if the call has ended.
func (c *Call) take(ctx context.Context, b *Budget, n int64, to **Ticket) error {
	t, err := b.Take(ctx, c.network, n)
	if err != nil {
		return overloaded(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		t.Return()
		return nil
	}
	*to = t
	return nil
}

func overloaded(err error) error {
	if errors.Is(err, ErrNever) {
		return problem.New(problem.Overloaded, "this replica has too little memory for such a large request; send a smaller one, or ask the operator to raise the memory limit").WithCause(err)
	}
	return problem.New(problem.Overloaded, "too many large requests are being answered at the moment, in total or for your network; send the same request again in a few seconds").WithRetryAfter(2).WithCause(err)
}

// Shrink gives back what the call holds over n bytes.
func (c *Call) Shrink(n int64) {
	now := c.now()
	if (now.more != nil || n < now.held.Units()) && now.held.Resize(n) {
		c.giveBack(&c.more)
	}
}

func (c *Call) giveBack(from **Ticket) {
	c.mu.Lock()
	t := *from
	*from = nil
	c.mu.Unlock()
	t.Return()
}

// Wait says that the call waits for other parties, and holds at most n bytes or MaxSmall meanwhile.
// The budget may call `wake`, also twice, which MUST return at once; then the call answers what is now. The caller
// calls `resume` after the wait.
func (c *Call) Wait(n int64, wake func()) (resume func(context.Context) error) {
	c.Rest()
	before := c.now().held.Units()
	if c.Shrink(max(n, MaxSmall)); before <= MaxSmall {
		if t, ok := c.process.large.Try(c.network, before); ok { // so that few small calls suffice for many waits
			c.giveBack(&c.held)
			c.mu.Lock()
			c.held = t
			c.mu.Unlock()
		}
	}
	held := c.now().held
	c.Blocked(wake)
	c.connection.Evictable(func() { // net/http does not see that it closed if another request is behind this one
		c.closes()
		wake()
	})
	return func(ctx context.Context) error {
		c.connection.Busy()
		if c.Busy() && (held == nil || held.budget != c.process.large) {
			return nil
		}
		c.giveBack(&c.more)
		c.giveBack(&c.held)
		return c.Hold(ctx, before)
	}
}

// Blocked says that the call waits for its client, until Busy. Meanwhile the budget may call `evict`,
// which MUST end the connection.
func (c *Call) Blocked(evict func()) {
	now := c.now()
	now.held.Evictable(evict)
	now.more.Evictable(evict)
}

// Busy ends Blocked. It returns false if a ticket was evicted.
func (c *Call) Busy() bool {
	now := c.now()
	held, more := now.held.Busy(), now.more.Busy()
	return held && more
}

// One waits for one of a kind. The networks take turns. The caller MUST call `done`.
func (c *Call) One(ctx context.Context, k Kind) (done func(), err error) {
	c.Rest()
	t, err := c.process.ones[k].Take(ctx, c.network, 1)
	if err != nil {
		return nil, overloaded(err)
	}
	return t.Return, nil
}

// Turn waits for a turn at the CPU, unless the call has one. What a call computes that holds more than a
// small one counts as long.
func (c *Call) Turn(ctx context.Context) error {
	switch {
	case c.Large():
		return c.Long(ctx)
	case c.HasTurn():
		return nil
	}
	return c.take(ctx, c.process.turns[c.now().of], 1, &c.turn)
}

// Long waits for a turn for a computation of more than a millisecond. It gives back a turn for a shorter one.
func (c *Call) Long(ctx context.Context) error {
	now := c.now()
	turns := c.process.long[now.of]
	if now.turn != nil && now.turn.budget == turns {
		return nil
	}
	c.Rest()
	return c.take(ctx, turns, 1, &c.turn)
}

// HasTurn reports whether the call has a turn.
func (c *Call) HasTurn() bool { return c.now().turn != nil }

// Yield passes the turn to other networks that wait for one. Long computations call it every few
// milliseconds. Those of one network end one after the other: their memory returns earlier.
func (c *Call) Yield(ctx context.Context) error {
	turn := c.now().turn
	if turn == nil || !turn.budget.waitedFor(turn) && ctx.Err() == nil {
		return nil
	}
	c.Rest()
	return c.take(ctx, turn.budget, 1, &c.turn)
}

// Rest gives back the turn. Every wait MUST begin with it, else all others wait, too. These call it
// themselves: statements, Redis, requests to the log, the beacon and the KMS, reading from the client,
// writing a large answer, and the other methods of a Call that wait.
func (c *Call) Rest() { c.giveBack(&c.turn) }

// End gives back all. Afterwards the call takes nothing.
func (c *Call) End() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.Rest()
	c.giveBack(&c.more)
	c.giveBack(&c.held)
}
