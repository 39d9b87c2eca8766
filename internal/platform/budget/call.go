package budget

import (
	"context"
	"errors"
	"sync"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Call holds the tickets of one call: one for what the call holds until the client took the answer, and
// a turn at the CPU, which it gives back before each wait. The methods return problem.Errors.
type Call struct {
	process *Process
	network string

	mu sync.Mutex
	// mu guards the state. No method waits while it holds mu.
	callState
}

type callState struct {
	of    int     // 1: a call of a party
	turns *Budget // of short turns
	ended bool
	held  *Ticket
	turn  *Ticket
}

type callKey struct{}

// nobody is the call of a context without one: it has no limits, and keeps no ticket.
var nobody = &Call{process: unlimited, callState: callState{turns: unlimited.turns[0], ended: true}}

// Begin returns a context with a call of a client network. The caller MUST call End. The call of a
// nil Process has no limits.
func (p *Process) Begin(ctx context.Context, network string) (context.Context, *Call) {
	if p == nil {
		return ctx, nobody
	}
	c := &Call{process: p, network: network, callState: callState{turns: p.turns[0]}}
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

// Party marks the call as one with an invite token of the deal. Call Party before Hold.
func (c *Call) Party() {
	c.Expect()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of = 1
}

// IsParty reports whether the call was marked by Party.
func (c *Call) IsParty() bool { return c.now().of == 1 }

func (c *Call) now() callState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.callState
}

// Hold makes the call's ticket at least n bytes large, before the call holds that much. If it must wait,
// it gives back its turn meanwhile. It keeps a large ticket while it waits, and gives back a small one.
func (c *Call) Hold(ctx context.Context, n int64) error {
	now := c.now()
	if now.held != nil && now.held.Units() >= n || c.get(ended, n) == nil {
		return nil
	}
	c.Rest() // who has a turn may wait for those who wait for one
	err := c.get(ctx, n)
	if err == nil && now.turn != nil {
		err = c.take(ctx, now.turn.budget, 1, &c.turn)
	}
	return err
}

// get enlarges a large ticket, or replaces a small one.
func (c *Call) get(ctx context.Context, n int64) error {
	now := c.now()
	if now.held != nil && now.held.budget == c.process.large {
		return overloaded(now.held.Grow(ctx, n))
	}
	c.giveBack(&c.held)
	from := c.process.large
	if n <= MaxSmall {
		from = c.process.small[now.of]
	}
	return c.take(ctx, from, n, &c.held)
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
	held := c.now().held
	return held != nil && held.Units() > MaxSmall
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
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNever):
		return problem.New(problem.Overloaded, "this replica has too little memory for such a large request; send a smaller one, or ask the operator to raise the memory limit").WithCause(err)
	}
	return problem.New(problem.Overloaded, "too many large requests are being answered at the moment, in total or for your network; send the same request again in a few seconds").WithRetryAfter(2).WithCause(err)
}

// Shrink gives back what the call holds over n bytes.
func (c *Call) Shrink(n int64) {
	if held := c.now().held; held != nil {
		held.Shrink(n)
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
// The budget may call `wake`, which MUST return at once; then the call answers what is now. The caller
// calls `resume` after the wait.
func (c *Call) Wait(n int64, wake func()) (resume func(context.Context) error) {
	c.Rest()
	held := c.now().held
	if held == nil {
		return func(context.Context) error { return nil }
	}
	before := held.Units()
	if held.budget == c.process.large {
		c.Shrink(max(n, MaxSmall))
	} else if t, ok := c.process.large.Try(c.network, before); ok { // so that few small calls suffice for many waits
		c.mu.Lock()
		c.held = t
		c.mu.Unlock()
		held.Return()
		held = t
	}
	held.Evictable(wake)
	return func(ctx context.Context) error {
		if held.Busy() && held.budget != c.process.large {
			return nil
		}
		c.giveBack(&c.held)
		return c.Hold(ctx, before)
	}
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

// Blocked says that the call waits for its client, until Busy. Meanwhile the budget may call `evict`,
// which MUST end the connection.
func (c *Call) Blocked(evict func()) {
	if t := c.now().held; t != nil {
		t.Evictable(evict)
	}
}

// Busy ends Blocked. It returns false if the ticket was evicted.
func (c *Call) Busy() bool {
	t := c.now().held
	return t == nil || t.Busy()
}

// Unsent returns a ticket of n bytes of the answer that the client has not taken yet when the call
// ends. It is that of the call, if it is large enough. If ok is false, there is none.
func (c *Call) Unsent(n int64) (t *Ticket, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t = c.held; t != nil && t.TryGrow(n) {
		c.held = nil
		t.Shrink(n)
		return t, true
	}
	return c.process.large.Try(c.network, n)
}

// End gives back all. Afterwards the call takes nothing.
func (c *Call) End() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.Rest()
	c.giveBack(&c.held)
}
