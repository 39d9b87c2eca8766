package budget

import (
	"container/heap"
	"container/list"
	"time"
)

// evictable returns the ticket to evict next for a waiter. It returns nil if there is none, or if the
// waiter fits once the evicted tickets are returned.
func (b *Budget) evictable(w *waiter) *Ticket {
	newcomer := w.ticket.network
	first := func(blocked *list.List) *Ticket { return blocked.Front().Value.(*Ticket) }
	switch over := b.over(w); {
	case over && newcomer.blocked.Len() > 0:
		return first(&newcomer.blocked)
	case over || w.units <= b.free()+b.leaving || len(b.blocking) == 0:
		return nil
	}
	kept := b.share() // what a network keeps from others for patience
	switch {
	case b.Bound > 0: // connections cost nothing to open again: sixteen networks could else fill a port and stay young
		kept = 0
	case b.Lease:
		kept = b.Size
	}
	late := func(t *Ticket) bool { return time.Since(t.since) >= patience }
	largest := b.blocking[0]
	t := first(&largest.blocked)
	if largest.held > max(kept, newcomer.held+w.units) && largest != newcomer || late(t) {
		return t
	}
	if t = first(&b.blocked); late(t) {
		return t
	}
	return nil
}

// evict returns what to call after mu is unlocked.
func (b *Budget) evict(t *Ticket) func() {
	evict := t.evict
	b.unblock(t)
	t.state = evicted
	b.leaving += t.units
	t.network.hold(b, -t.units)
	return evict
}

// block lets a ticket be evicted from now on.
func (b *Budget) block(t *Ticket, evict func()) {
	b.unblock(t)
	one := t.network
	t.evict, t.since = evict, time.Now()
	t.blocked = [2]*list.Element{b.blocked.PushBack(t), one.blocked.PushBack(t)}
	if one.index < 0 {
		heap.Push(&b.blocking, one)
	}
}

func (b *Budget) unblock(t *Ticket) {
	if t.blocked[0] == nil {
		return
	}
	b.blocked.Remove(t.blocked[0])
	t.network.blocked.Remove(t.blocked[1])
	t.evict, t.blocked = nil, [2]*list.Element{}
	if t.network.blocked.Len() == 0 {
		heap.Remove(&b.blocking, t.network.index)
	}
}

// hold changes what a network holds.
func (n *network) hold(b *Budget, more int64) {
	n.held += more
	if n.index >= 0 {
		heap.Fix(&b.blocking, n.index)
	}
}

// byHeld is a heap of networks.
type byHeld []*network

func (h byHeld) Len() int           { return len(h) }
func (h byHeld) Less(i, j int) bool { return h[i].held > h[j].held }
func (h byHeld) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *byHeld) Push(one any) {
	one.(*network).index = len(*h)
	*h = append(*h, one.(*network))
}

// Pop implements heap.Interface.
func (h *byHeld) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last] = nil
	*h, one.index = (*h)[:last], -1
	return one
}
