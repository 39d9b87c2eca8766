package budget

import "context"

// TryGrow makes the ticket n units large, or returns false and changes nothing. It does not wait.
func (t *Ticket) TryGrow(n int64) bool {
	b := t.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.network == nil || t.evicted {
		return false
	}
	if n <= t.units {
		return true
	}
	more := &Ticket{budget: b, name: t.name, units: n - t.units}
	if !b.grantNow(more, t) {
		return false
	}
	t.merge(more)
	return true
}

// Grow makes the ticket n units large, and waits for that like Take. Meanwhile the ticket still counts.
func (t *Ticket) Grow(ctx context.Context, n int64) error {
	if t.TryGrow(n) {
		return nil
	}
	b, more := t.budget, &Ticket{budget: t.budget, name: t.name, units: n - t.Units()}
	switch {
	case n > b.Size:
		return ErrNever
	case !t.Busy():
		return ErrFull
	}
	if err := b.take(ctx, more, t); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.unlock()
	if t.network == nil || t.evicted {
		more.giveBack()
		return ErrFull
	}
	t.merge(more)
	return nil
}

// merge adds the units of another ticket of the network, which ends.
func (t *Ticket) merge(more *Ticket) {
	units, deep := more.units, more.deep
	more.giveBack()
	t.resize(t.units + units)
	t.deep += deep
	t.budget.deep += deep
}

// fromGrowth reports whether Growth has n units for a ticket that grows (nil: for a new one).
func (b *Budget) fromGrowth(n int64, grows *Ticket) bool {
	return grows != nil && (b.deep == 0 || b.grown == grows) && b.deep+n <= b.Growth
}

// nextGrowing returns the waiter of the network that holds least.
func (b *Budget) nextGrowing() (next *waiter) {
	for e := b.growing.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); next == nil || b.heldBy(w) < b.heldBy(next) {
			next = w
		}
	}
	return next
}

// heldBy returns what the network of a waiter holds. The ticket that it enlarges may be returned already.
func (b *Budget) heldBy(w *waiter) int64 {
	if one := b.networks[w.ticket.name]; one != nil {
		return one.held
	}
	return 0
}
