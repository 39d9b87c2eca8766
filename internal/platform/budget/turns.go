package budget

import "context"

// Turn waits for a turn at the CPU before a call is known, and returns a problem.Error. A nil Process
// has no limits. `party` means that the call may be expected to be a party's: parties have turns of
// their own, so that they do not wait behind strangers.
func (p *Process) Turn(network string, party bool) (*Ticket, error) {
	if p == nil {
		return nil, nil
	}
	turns := p.turns[0]
	if party {
		turns = p.turns[1]
	}
	t, err := turns.Take(context.Background(), network, 1)
	if err != nil {
		return nil, overloaded(err)
	}
	return t, nil
}

// Adopt makes a turn, which may be nil, that of the call. It returns the turn if it is another network's.
func (c *Call) Adopt(turn *Ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if turn == nil || c.ended || c.network != turn.network.name {
		turn.Return()
		return
	}
	c.turns, c.turn = turn.budget, turn
}

// Expect says that the call is expected to be a party's before that is known for certain: its turns
// are those of parties.
func (c *Call) Expect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns = c.process.turns[1]
}

// Turn waits for a turn at the CPU, unless the call has one. What a call computes that holds more than a
// small one counts as long.
func (c *Call) Turn(ctx context.Context) error {
	if c.Large() {
		return c.Long(ctx)
	}
	if c.HasTurn() {
		return nil
	}
	return c.take(ctx, c.now().turns, 1, &c.turn)
}

// Long waits for a turn for a computation of more than a millisecond. It gives back a turn for a shorter one.
func (c *Call) Long(ctx context.Context) error {
	now := c.now()
	turns := c.process.long[now.of]
	if now.turn != nil && now.turn.budget == turns && now.turn.Units() > 0 {
		return nil
	}
	c.Rest()
	return c.take(ctx, turns, 1, &c.turn)
}

// HasTurn reports whether the call has a turn, which may have ended by itself (Options.Lease).
func (c *Call) HasTurn() bool {
	turn := c.now().turn
	return turn != nil && turn.Units() > 0
}

// Yield passes the turn to others that wait for one. Long computations call it every few
// milliseconds.
func (c *Call) Yield(ctx context.Context) error {
	turn := c.now().turn
	if turn == nil || turn.Units() > 0 && !turn.budget.waitedFor() && ctx.Err() == nil {
		return nil
	}
	c.Rest()
	return c.take(ctx, turn.budget, 1, &c.turn)
}

// Rest gives back the turn. Every wait begins with it, else all others wait, too, until the turn ends
// by itself (Options.Lease). These call it themselves: statements, Redis, requests to the log, the
// beacon and the KMS, reading from the client, writing a large answer, and the other methods of a Call
// that wait. Any other wait MUST call it.
func (c *Call) Rest() { c.giveBack(&c.turn) }
