package budget

import (
	"container/heap"
	"container/list"
	"time"
)

// makeRoom evicts tickets until n units for the network `newcomer` (nil: it holds nothing) would
// fit. It returns what to call after mu is unlocked.
func (b *Budget) makeRoom(l *lane, newcomer *network, n int64) (evict []func()) {
	need := b.lacking(l, n) - l.leaving
	if l.part == 0 { // the other lanes give back their overflow first
		for i := range b.lanes[:Large] {
			other := &b.lanes[i]
			over := other.overflowOf(other.used)
			evict = append(evict, b.evict(other, nil, n, min(need, over)-other.leaving)...)
			need -= min(over, other.leaving)
		}
	}
	holds := n
	if newcomer != nil {
		holds += newcomer.held - newcomer.leaving
	}
	return append(evict, b.evict(l, newcomer, holds, need)...)
}

// evict evicts tickets of at least `need` units of a lane, as far as the rules allow it, for a network
// that will hold `holds` units.
func (b *Budget) evict(l *lane, newcomer *network, holds, need int64) (evict []func()) {
	for need > 0 && l.blocked.Len() > 0 {
		largest, now := l.blocking[0], time.Now()
		first := largest.blocked.Front().Value.(*Ticket)
		if held := largest.held - largest.leaving; held <= l.share || held <= holds || largest == newcomer {
			if now.Sub(first.since) < b.Patience {
				first = l.blocked.Front().Value.(*Ticket)
			}
			if now.Sub(first.since) < b.Patience {
				break
			}
		}
		need -= first.units
		evict = append(evict, l.evictOne(first))
	}
	return evict
}

func (l *lane) evictOne(t *Ticket) func() {
	one, evict := t.network, t.evict
	l.unblock(t)
	t.evicted = true
	l.leaving += t.units
	if one.leaving += t.units; one.index >= 0 {
		heap.Fix(&l.blocking, one.index)
	}
	return evict
}

func (l *lane) unblock(t *Ticket) {
	if t.blocked[0] == nil {
		return
	}
	l.blocked.Remove(t.blocked[0])
	t.network.blocked.Remove(t.blocked[1])
	if t.network.blocked.Len() == 0 {
		heap.Remove(&l.blocking, t.network.index)
	}
	t.blocked, t.evict = [2]*list.Element{}, nil
}

func run(all []func()) {
	for _, evict := range all {
		evict()
	}
}
