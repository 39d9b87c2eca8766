package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
)

type connKey struct{}

func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

type conn struct {
	*net.TCPConn
	of      *Listener
	network string
	ticket  *budget.Ticket // of Listener.open

	// Only one goroutine at a time uses the fields below: the one that serves the connection, or
	// net/http's that reads ahead.
	lines   int          // of the header so far; -1: it has ended
	text    bool         // the last line so far is not empty
	long    bool         // the header is long, and being parsed (Listener.parsing)
	call    *budget.Call // that is served; without limits between calls
	written int          // bytes since the client had taken nearly all
}

const (
	mostLines  = 128     // of a header
	readAhead  = 4 << 10 // size of net/http's read buffer
	headerStep = 1 << 10 // bytes that are read into it at once
)

var errLines = errors.New("too many lines in the header")

// Read gives back the turn at the CPU before the call waits for its body.
//
// It counts the lines of a header: net/http takes about a hundred bytes for each, however short it is,
// so a header of 12 KiB could take 400 kB. A header that begins in the read buffer, behind
// another request, is not counted up to headerStep.
//
// Headers of more than headerStep are parsed one at a time: those of many clients would take the CPU from
// all others.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) <= readAhead {
		b = b[:min(len(b), headerStep)]
	}
	if c.lines < 0 && len(b) > 1 { // not net/http, which waits for a byte while the call is served
		c.call.Rest()
	}
	c.parsed()
	n, err := c.TCPConn.Read(b)
	if c.lines >= 0 && n == headerStep {
		c.of.parsing <- struct{}{}
		c.long = true
	}
	for _, one := range b[:n] {
		switch {
		case c.lines < 0:
			return n, err
		case one != '\n' && one != '\r':
			c.text = true
		case one == '\n' && !c.text && c.lines > 0:
			c.lines = -1
		case one == '\n':
			c.lines++
			c.text = false
		}
		if c.lines > mostLines {
			return 0, errLines
		}
	}
	return n, err
}

// parsed lets the next long header be parsed.
func (c *conn) parsed() {
	if c.long {
		<-c.of.parsing
		c.long = false
	}
}

const (
	freeUnsent = 16 << 10               // unsent bytes that need no ticket
	pollUnsent = 100 * time.Millisecond // how often the kernel is asked what is unsent, at least
)

// Write replaces the errors of net/http itself. A large answer is written once the call holds what the
// kernel may keep of it, and Write returns once the client has taken nearly all. Meanwhile the budget may
// close the connection.
func (c *conn) Write(b []byte) (int, error) {
	if p := refusal(b); p != nil {
		c.parsed() // net/http waits before it closes the connection
		return len(b), Refuse(c.TCPConn, p)
	}
	if c.written += len(b); c.written <= freeUnsent {
		return c.TCPConn.Write(b)
	}
	c.call.Rest()
	if err := c.call.Hold(context.Background(), int64(min(c.written, mostUnsent))); err != nil {
		c.evict()
		return 0, err
	}
	c.waits()
	c.call.Blocked(c.evict)
	n, err := c.TCPConn.Write(b)
	c.written = c.drain(freeUnsent)
	return n, err
}

// drain waits until the client has taken all but n bytes of what was written, or is gone. It returns how
// many it has not.
func (c *conn) drain(n int) (left int) {
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, pollUnsent) {
		if left = c.left(); left <= n {
			return left
		}
		if time.Since(began) > timelimits.Write {
			c.evict()
		}
		time.Sleep(pause)
	}
}

// left returns how many bytes the kernel holds for the client; 0 if the client is gone.
func (c *conn) left() (n int) {
	control(c, func(fd int) {
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && info.State != unix.BPF_TCP_CLOSE {
			n, _ = unix.IoctlGetInt(fd, unix.TIOCOUTQ)
		}
	})
	return n
}

// Serves says which call a request is, until `done`, which ends the call.
func Serves(r *http.Request, call *budget.Call) (done func()) {
	c := connOf(r.Context())
	if c == nil {
		return call.End
	}
	c.call = call
	call.Connection(c.ticket, c.evict)
	return func() {
		c.call = budget.From(context.Background())
		call.End()
	}
}

// Close closes the connection once the client has taken all or is gone, at most timelimits.Write later.
// The kernel says, too, that a client is gone that has taken nothing for unackedTime. Until then the
// listener counts the connection, and the budget may end it.
func (c *conn) Close() error {
	if c.left() == 0 {
		defer c.ticket.Return()
		return c.TCPConn.Close()
	}
	c.waits()
	go func() {
		c.drain(0)
		c.evict()
	}()
	_ = c.SetReadDeadline(time.Now()) // a Read ends, as after any Close
	return c.CloseWrite()
}

// waits says that the server waits for the client, until busy.
func (c *conn) waits() {
	if c != nil {
		c.ticket.Evictable(c.evict)
	}
}

func (c *conn) busy() {
	if c != nil {
		c.ticket.Busy()
	}
}

// evict closes the connection at once, and lets the kernel forget what is unsent, if that is much.
func (c *conn) evict() {
	if c.left() > freeUnsent {
		_ = c.SetLinger(0)
	}
	_ = c.TCPConn.Close()
	c.ticket.Return()
}
