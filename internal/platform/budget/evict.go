package budget

import (
	"container/heap"
	"container/list"
	"time"
)

// makeRoom evicts tickets until n units for the network `newcomer` (nil: it holds nothing) would
// fit. It returns what to call after mu is unlocked.
func (b *Budget) makeRoom(newcomer *network, n int64) (evict []func()) {
	holds := n
	if newcomer != nil {
		holds += newcomer.held - newcomer.leaving
	}
	for need := b.used - b.deep + n - (b.Size - b.Growth) - b.leaving; need > 0; {
		t := b.evictable(newcomer, holds)
		if t == nil {
			break
		}
		need -= t.units
		evict = append(evict, b.evict(t))
	}
	return evict
}

// evictable returns the ticket to evict next for a network that will hold `holds` units, or nil.
func (b *Budget) evictable(newcomer *network, holds int64) *Ticket {
	if len(b.blocking) == 0 {
		return nil
	}
	late := func(t *Ticket) bool { return time.Since(t.since) >= b.Patience }
	largest := b.blocking[0]
	t, held := largest.blocked.Front().Value.(*Ticket), largest.held-largest.leaving
	kept := b.share() // what a network keeps from others for Patience
	switch {
	case b.Bound: // connections cost nothing to open again: sixteen networks could else fill a port and stay young
		kept = 0
	case b.Lease:
		kept = b.Size
	}
	if held > kept && held > holds && largest != newcomer || late(t) {
		return t
	}
	if t = b.blocked.Front().Value.(*Ticket); late(t) {
		return t
	}
	return nil
}

// block lets a ticket be evicted from now on.
func (b *Budget) block(t *Ticket, evict func()) {
	one := t.network
	t.evict, t.since = evict, time.Now()
	if t.blocked[0] != nil {
		b.blocked.MoveToBack(t.blocked[0])
		one.blocked.MoveToBack(t.blocked[1])
		return
	}
	t.blocked[0], t.blocked[1] = b.blocked.PushBack(t), one.blocked.PushBack(t)
	if one.index < 0 {
		heap.Push(&b.blocking, one)
	}
}

func (b *Budget) evict(t *Ticket) func() {
	one, evict := t.network, t.evict
	b.unblock(t)
	t.evicted = true
	b.leaving += t.units
	if one.leaving += t.units; one.index >= 0 {
		heap.Fix(&b.blocking, one.index)
	}
	return evict
}

func (b *Budget) unblock(t *Ticket) {
	if t.blocked[0] == nil {
		return
	}
	b.blocked.Remove(t.blocked[0])
	t.network.blocked.Remove(t.blocked[1])
	if t.network.blocked.Len() == 0 {
		heap.Remove(&b.blocking, t.network.index)
	}
	t.blocked, t.evict = [2]*list.Element{}, nil
}

func run(all []func()) {
	for _, evict := range all {
		evict()
	}
}

// byHeld is a heap of networks.
type byHeld []*network

func (h byHeld) Len() int           { return len(h) }
func (h byHeld) Less(i, j int) bool { return h[i].held-h[i].leaving > h[j].held-h[j].leaving }
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
