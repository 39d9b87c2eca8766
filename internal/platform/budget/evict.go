package budget

import (
	"container/heap"
	"container/list"
	"time"
)

// growPatience is how many times as long as others a ticket that grows is spared: it does not wait for its client.
const growPatience = 4

// makeRoom evicts tickets, but not the one that is spared, until n units for the network `newcomer`
// (nil: it holds nothing) would fit. It returns what to call after mu is unlocked.
func (b *Budget) makeRoom(newcomer *network, n int64, spared *Ticket) (evict []func()) {
	holds := n
	if newcomer != nil {
		holds += newcomer.held - newcomer.leaving
	}
	for need := b.used + n - b.Size - b.leaving; need > 0; {
		t := b.evictable(newcomer, holds, spared)
		if t == nil {
			break
		}
		need -= t.units
		evict = append(evict, b.evict(t))
	}
	return evict
}

// evictable returns the ticket to evict next for a network that will hold `holds` units, or nil.
func (b *Budget) evictable(newcomer *network, holds int64, spared *Ticket) *Ticket {
	first := func(blocked *list.List) *Ticket {
		for e := blocked.Front(); e != nil; e = e.Next() {
			if t := e.Value.(*Ticket); t != spared && (!t.grows || time.Since(t.since) >= growPatience*b.Patience) {
				return t
			}
		}
		return nil
	}
	late := func(t *Ticket) bool { return t != nil && time.Since(t.since) >= b.Patience }
	if len(b.blocking) == 0 {
		return nil
	}
	largest := b.blocking[0]
	t, held := first(&largest.blocked), largest.held-largest.leaving
	kept := b.share() // what a network keeps from others for Patience
	if b.Bound {      // connections cost nothing to open again: sixteen networks could else fill a port and stay young
		kept = 0
	}
	if t != nil && held > kept && held > holds && largest != newcomer || late(t) {
		return t
	}
	if t = first(&b.blocked); late(t) {
		return t
	}
	return nil
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
