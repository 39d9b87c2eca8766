package budget

import (
	"context"
	"errors"
	"sync"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Call holds the tickets of one call: one for what the call holds until the client took the answer
// (Hold), one of Work for a parsed body, and a turn at the CPU. A nil *Call has no limits. The
// methods return problem.Errors.
type Call struct {
	process *Process
	network string

	mu sync.Mutex
	// mu guards the fields below. No method waits while it holds mu.
	party bool
	ended bool
	held  *Ticket // of Party, Other or Large
	units int64   // of held, so that Hold and Shrink rarely lock the budget
	work  *Ticket
	turn  *Ticket
}

type callKey struct{}

// Begin returns a context with a call of a client network. The caller MUST call End. The call of a
// nil Process has no limits.
func (p *Process) Begin(ctx context.Context, network string) (context.Context, *Call) {
	if p == nil {
		return ctx, nil
	}
	c := &Call{process: p, network: network}
	return context.WithValue(ctx, callKey{}, c), c
}

// From returns the call in ctx, or nil.
func From(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Party marks the call as one with an invite token of the deal. Call Party before Hold.
func (c *Call) Party() {
	if c != nil {
		c.mu.Lock()
		c.party = true
		c.mu.Unlock()
	}
}

// Hold makes the call's ticket at least n bytes large, before the call holds that much. It waits only
// if the call holds no more than a small ticket, which it gives back first. Otherwise, and after
// Compute, it returns OVERLOADED if the ticket cannot grow at once.
func (c *Call) Hold(ctx context.Context, n int64) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	held, working, lane := c.held, c.work != nil, c.lane(n)
	enough := held != nil && (c.units >= n || held.lane == lane && held.Grow(n))
	if enough {
		c.units = max(c.units, n)
	}
	c.mu.Unlock()
	switch {
	case enough:
		return nil
	case working, held != nil && held.lane == Large:
		return overloaded(ErrFull)
	}
	c.giveBack(&c.held)
	// Who has a turn may wait for those who wait for one.
	c.mu.Lock()
	turn := c.turn != nil
	c.mu.Unlock()
	if turn {
		c.Rest()
	}
	err := c.take(ctx, c.process.memory, lane, n, &c.held)
	if err == nil && turn {
		err = c.Turn(ctx)
	}
	return err
}

// Parse counts the tree of a body that the call holds, in bytes, before it is parsed: in the ticket of a small call, and
// otherwise with Compute and a turn for the parser.
func (c *Call) Parse(ctx context.Context, body int, tree int64) error {
	small := SmallCall + int64(body)
	if small+tree <= MaxSmall {
		return c.Hold(ctx, small+tree)
	}
	err := c.Hold(ctx, small)
	if err == nil {
		err = c.Compute(ctx, tree)
	}
	if err == nil {
		err = c.Turn(ctx)
	}
	return err
}

func (c *Call) lane(n int64) Lane {
	switch {
	case n > MaxSmall:
		return Large
	case c.party:
		return Party
	}
	return Other
}

// take waits for a ticket, and returns it at once if the call has ended meanwhile.
func (c *Call) take(ctx context.Context, b *Budget, lane Lane, n int64, to **Ticket) error {
	t, err := b.Take(ctx, lane, c.network, n)
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
	if to == &c.held {
		c.units = n
	}
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
	if c == nil {
		return
	}
	c.mu.Lock()
	held := c.held
	if n >= c.units {
		held = nil
	}
	c.units = min(c.units, n)
	c.mu.Unlock()
	if held != nil {
		held.Shrink(n)
	}
}

// Compute counts n bytes that the call holds while it computes, such as a parsed body, until Wait or
// Answer. Before Compute, the call MUST hold all that it waits for.
func (c *Call) Compute(ctx context.Context, n int64) error {
	if c == nil {
		return nil
	}
	return c.take(ctx, c.process.memory, Work, n, &c.work)
}

// Computes reports whether the call holds what Compute took. It MUST NOT wait for another call then.
func (c *Call) Computes() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.work != nil
}

// Turn waits for a turn at the CPU for a long computation. Rest gives it back.
func (c *Call) Turn(ctx context.Context) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	turn, lane := c.turn, c.lane(0)
	c.mu.Unlock()
	if turn != nil {
		return nil
	}
	return c.take(ctx, c.process.turns, lane, 1, &c.turn)
}

// Yield passes the turn to others that wait for one. Long computations call it every few
// milliseconds.
func (c *Call) Yield(ctx context.Context) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	turn := c.turn
	c.mu.Unlock()
	if turn == nil {
		return nil
	}
	if err := turn.Yield(ctx); err != nil {
		return overloaded(err)
	}
	return nil
}

// Rest gives back the turn, for example before a request to another server.
func (c *Call) Rest() {
	if c != nil {
		c.giveBack(&c.turn)
	}
}

// Answer says that the answer begins: it gives back the turn, and what Compute took.
func (c *Call) Answer() {
	if c != nil {
		c.giveBack(&c.turn)
		c.giveBack(&c.work)
	}
}

func (c *Call) giveBack(from **Ticket) {
	c.mu.Lock()
	t := *from
	*from = nil
	if from == &c.held {
		c.units = 0
	}
	c.mu.Unlock()
	if t != nil {
		t.Return()
	}
}

// Wait says that the call waits for other parties, and holds at most n bytes or MaxSmall meanwhile. The budget may
// call `wake`, which MUST return at once; then the call answers what is now. The caller calls
// `resume` after the wait.
func (c *Call) Wait(n int64, wake func()) (resume func(context.Context) error) {
	if c == nil {
		return func(context.Context) error { return nil }
	}
	c.Answer()
	held := c.ticket()
	if held == nil {
		return func(context.Context) error { return nil }
	}
	before := held.Units()
	c.Shrink(max(n, MaxSmall))
	held.Evictable(wake)
	return func(ctx context.Context) error {
		if held.Busy() && before <= MaxSmall {
			return nil
		}
		held.Return()
		return c.take(ctx, c.process.memory, c.lane(before), before, &c.held)
	}
}

// Lookup waits for a turn to look up an unknown credential.
func (c *Call) Lookup(ctx context.Context) (done func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	t, err := c.process.lookups.Take(ctx, Other, c.network, 1)
	if err != nil {
		return nil, overloaded(err)
	}
	return t.Return, nil
}

// Blocked says that the call waits for its client, until Busy. Meanwhile the budget may call `evict`,
// which MUST end the connection.
func (c *Call) Blocked(evict func()) {
	if t := c.ticket(); t != nil {
		t.Evictable(evict)
	}
}

// Busy ends Blocked. It returns false if the ticket was evicted.
func (c *Call) Busy() bool {
	t := c.ticket()
	return t == nil || t.Busy()
}

func (c *Call) ticket() *Ticket {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// Unsent returns a ticket of n bytes of the answer that the client has not taken yet when the call
// ends. It is that of the call, if it is large enough. If ok is false, there is none.
func (c *Call) Unsent(n int64) (t *Ticket, ok bool) {
	c.mu.Lock()
	t = c.held
	if large := t != nil && (t.Units() >= n || t.Grow(n)); large {
		c.held = nil
	} else {
		t = nil
	}
	c.mu.Unlock()
	if t != nil {
		t.Shrink(n)
		return t, true
	}
	return c.process.memory.Try(Large, c.network, n)
}

// End gives back all. Afterwards the call takes nothing.
func (c *Call) End() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.Answer()
	c.giveBack(&c.held)
}
