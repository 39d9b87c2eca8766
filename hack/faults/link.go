package main

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

type linkMode int

const (
	linkOpen  linkMode = iota
	linkCut            // all connections are closed; each new connection is closed immediately
	linkSlow           // each read is delayed by slowBy
	linkStuck          // connections stay open and no byte is passed on
)

const slowBy = 100 * time.Millisecond

// link is a TCP proxy that faults can cut, slow down or block. With several targets, each
// connection goes to the next target that accepts it, as in a Kubernetes Service.
type link struct {
	listener net.Listener

	next atomic.Int64

	mu        sync.Mutex
	targets   []string // host:port
	retargets int      // number of calls of retarget
	mode      linkMode
	changed   chan struct{} // closed when the mode changes
	conns     map[net.Conn]bool
}

func newLink(targets ...string) (*link, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, targets: targets, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	go l.accept()
	return l, nil
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) set(mode linkMode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = mode
	close(l.changed)
	l.changed = make(chan struct{})
	if mode == linkCut {
		for c := range l.conns {
			_ = c.Close()
		}
	}
}

// retarget replaces the targets and closes all connections. Without targets, the link immediately
// closes each new connection.
func (l *link) retarget(to ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.targets = to
	l.retargets++
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *link) close() {
	l.set(linkCut)
	_ = l.listener.Close()
}

func (l *link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.join(near)
	}
}

func (l *link) join(near net.Conn) {
	defer near.Close()
	if !l.pass() {
		return
	}
	far, moves, err := l.dial()
	if err != nil {
		return
	}
	defer far.Close()
	l.mu.Lock()
	if l.retargets != moves { // retarget ran during dial: `far` goes to an old target, and retarget did not close it
		l.mu.Unlock()
		return
	}
	l.conns[near], l.conns[far] = true, true
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.carry(far, near) })
	both.Go(func() { l.carry(near, far) })
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, near)
	delete(l.conns, far)
}

// dial connects to the next target that accepts. `moves` is the value of l.moves before the first
// attempt, so that the caller can detect a retarget during dial.
func (l *link) dial() (far net.Conn, moves int, err error) {
	l.mu.Lock()
	targets, moves := l.targets, l.retargets
	l.mu.Unlock()
	first := int(l.next.Add(1))
	err = errors.New("the link has no target")
	for i := range targets {
		if far, err = net.DialTimeout("tcp4", targets[(first+i)%len(targets)], time.Second); err == nil {
			break
		}
	}
	return far, moves, err
}

func (l *link) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !l.pass() {
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// pass waits while the link is stuck, and returns false if the link is cut.
func (l *link) pass() bool {
	for {
		l.mu.Lock()
		mode, changed := l.mode, l.changed
		l.mu.Unlock()
		switch mode {
		case linkCut:
			return false
		case linkSlow:
			time.Sleep(slowBy)
			return true
		case linkOpen:
			return true
		}
		<-changed
	}
}
