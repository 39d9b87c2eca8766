package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// linkMode is what a link does to the bytes on it.
type linkMode int

const (
	linkOpen  linkMode = iota
	linkCut            // connections break, new ones are refused
	linkSlow           // each read is passed on later
	linkStuck          // connections stand, and nothing moves
)

const slowBy = 100 * time.Millisecond

// link is a TCP way from one process to another that can be disturbed. With
// several targets it goes to the next one that accepts, as a Service of
// Kubernetes does.
type link struct {
	listener net.Listener
	targets  []string // host:port

	mu      sync.Mutex
	next    int
	mode    linkMode
	changed chan struct{} // closed when the mode changes
	conns   map[net.Conn]struct{}
}

func newLink(targets ...string) (*link, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, targets: targets, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	go l.accept()
	return l, nil
}

func (l *link) address() string { return l.listener.Addr().String() }

// set changes the mode. A link that is cut loses its connections.
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

func (l *link) close() {
	l.set(linkCut)
	_ = l.listener.Close()
}

func (l *link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		go l.join(near)
	}
}

func (l *link) join(near net.Conn) {
	if err := l.pass(); err != nil {
		_ = near.Close()
		return
	}
	far, err := l.dial()
	if err != nil {
		_ = near.Close()
		return
	}
	l.mu.Lock()
	l.conns[near], l.conns[far] = struct{}{}, struct{}{}
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

func (l *link) dial() (far net.Conn, err error) {
	l.mu.Lock()
	first := l.next
	l.next++
	l.mu.Unlock()
	for i := range l.targets {
		if far, err = net.DialTimeout("tcp4", l.targets[(first+i)%len(l.targets)], time.Second); err == nil {
			return far, nil
		}
	}
	return nil, err
}

// carry passes on what one end writes until either is closed, and closes both.
func (l *link) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if l.pass() != nil {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

var errCut = errors.New("the link is cut")

// pass returns when bytes may go on, or errCut.
func (l *link) pass() error {
	for {
		l.mu.Lock()
		mode, changed := l.mode, l.changed
		l.mu.Unlock()
		switch mode {
		case linkCut:
			return errCut
		case linkSlow:
			time.Sleep(slowBy)
			return nil
		case linkOpen:
			return nil
		}
		<-changed
	}
}
