package budget

import "container/list"

// Budget.mu guards the fields of lanes, networks and waiters.

type lane struct {
	part     int64 // 0 for Large
	most     int64 // the largest ticket
	share    int64
	used     int64
	leaving  int64
	networks map[string]*network
	turns    list.List // of *network that wait, next one first
	blocked  list.List // of *Ticket that can be evicted, blocked longest first
	blocking byHeld    // the networks of these tickets, as a heap with the largest first
}

type network struct {
	name    string
	held    int64
	leaving int64
	tickets int           // some may have 0 units
	waiters list.List     // of *waiter, next one first
	turn    *list.Element // in lane.turns; nil: the network does not wait
	blocked list.List     // of *Ticket, blocked longest first
	index   int           // in lane.blocking; -1: none of its tickets can be evicted
}

type waiter struct {
	ticket  *Ticket
	ready   chan struct{} // closed when the ticket is granted
	element *list.Element // in network.waiters; nil: granted
}

// next returns the network that is served next. Some network MUST wait.
func (l *lane) next() *network {
	for e := l.turns.Front(); e != nil; e = e.Next() {
		one := e.Value.(*network)
		if one.held == 0 || one.held+one.waiters.Front().Value.(*waiter).ticket.units <= l.share {
			return one
		}
	}
	return l.turns.Front().Value.(*network)
}

// leave removes a waiter. If its network has more, the network goes to the end of the round.
func (l *lane) leave(one *network, w *waiter) {
	one.waiters.Remove(w.element)
	w.element = nil
	if one.waiters.Len() > 0 {
		l.turns.MoveToBack(one.turn)
		return
	}
	l.turns.Remove(one.turn)
	one.turn = nil
}

// overflowOf returns how many of `used` units of a lane are in Shared.
func (l *lane) overflowOf(used int64) int64 { return max(0, used-l.part) }

func (l *lane) of(name string) *network {
	one := l.networks[name]
	if one == nil {
		one = &network{name: name, index: -1}
		l.networks[name] = one
	}
	return one
}

func (l *lane) forget(one *network) {
	if one.tickets == 0 && one.turn == nil {
		delete(l.networks, one.name)
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
