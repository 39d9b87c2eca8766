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
	"github.com/fairpact/fairpact/internal/rules/problem"
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
	lines   int            // of the header so far; -1: it has ended
	text    bool           // the last line so far is not empty
	turn    *budget.Ticket // to parse the header; nil: none
	call    *budget.Call   // that is served; without limits between calls
	party   bool           // the last call was a party's
	written int            // bytes since the client had taken nearly all
	began   time.Time      // when these came to more than freeUnsent
	unsent  *budget.Ticket // of bytes that the client has not taken yet; may be returned already
}

const (
	mostLines  = 128     // of a header
	readAhead  = 4 << 10 // size of net/http's read buffer
	headerStep = 1 << 10 // bytes that are read into it at once
)

var errLines = errors.New("too many lines in the header")

// Read waits for a turn at the CPU once some of a header has come, and gives back that of the call
// before it waits for a body.
//
// It counts the lines of a header: net/http takes about a hundred bytes for each, however short it is,
// so a header of 16 KiB could take half a megabyte. A header that begins in the read buffer, behind
// another request, is not counted up to headerStep.
func (c *conn) Read(b []byte) (int, error) {
	if c.lines < 0 {
		if len(b) > 1 { // not net/http, which waits for a byte while the call is served
			c.call.Rest()
		}
		if len(b) <= readAhead {
			b = b[:min(len(b), headerStep)]
		}
		return c.TCPConn.Read(b)
	}
	c.rest()
	n, err := c.TCPConn.Read(b[:min(len(b), headerStep)])
	if n > 0 {
		var full error
		if c.turn, full = c.of.process.Turn(c.network, c.party); full != nil {
			_ = Refuse(c.TCPConn, problem.From(full))
			return 0, full
		}
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

func (c *conn) rest() {
	c.turn.Return()
	c.turn = nil
}

// write lets the budget close the connection while the client does not take an answer.
func (c *conn) write(b []byte) (int, error) {
	c.written += len(b)
	if c.written <= freeUnsent {
		return c.TCPConn.Write(b)
	}
	if c.written-len(b) <= freeUnsent {
		c.began = time.Now()
	}
	c.call.Rest()
	sent, err := 0, error(nil)
	for err == nil && sent < len(b) {
		if !lags(c.began, c.written-len(b)+sent) {
			c.waits()
			c.call.Blocked(c.evict)
		}
		n := 0
		n, err = c.TCPConn.Write(b[sent:min(len(b), sent+step)])
		sent += n
	}
	c.call.Busy()
	c.busy()
	return sent, err
}

// pace is how many bytes a second a client takes or sends, at least on average, while others wait for
// the memory that its call holds: the call of a slower one counts as blocked although it gets on.
const pace = 512 << 10

// lags reports whether n bytes since a time are too few.
func lags(since time.Time, n int) bool {
	return time.Since(since) > time.Duration(n)*time.Second/pace+time.Millisecond
}

const (
	freeUnsent = 16 << 10               // unsent bytes that need no ticket
	pollUnsent = 100 * time.Millisecond // how often the kernel is asked what is unsent
)

// Serves says which call a request is, until Sent, and gives it the turn of the header.
func Serves(r *http.Request, call *budget.Call) {
	if c := connOf(r.Context()); c != nil {
		c.call = call
		call.Adopt(c.turn)
		c.turn = nil
	}
}

// Proxied reports whether a request came through a proxy (see NewListener).
func Proxied(r *http.Request) bool {
	c := connOf(r.Context())
	return c != nil && c.network == ""
}

// Sent ends the call of a request. If the kernel still holds much of the answer, the connection keeps
// a ticket for it until the client has taken it. Meanwhile the budget may close the connection.
func Sent(r *http.Request, call *budget.Call) {
	defer call.End()
	c := connOf(r.Context())
	if c == nil {
		return
	}
	c.call, c.party = budget.From(context.Background()), call.IsParty()
	if c.written <= freeUnsent {
		return
	}
	left := c.left()
	if left <= freeUnsent {
		c.written = 0
		return
	}
	c.unsent.Return()
	unsent, ok := call.Unsent(left)
	if c.unsent = unsent; !ok {
		c.evict()
		return
	}
	unsent.Evictable(c.evict)
	every(func() bool {
		left := c.left()
		if unsent.Shrink(left); left <= freeUnsent {
			unsent.Return()
		}
		return unsent.Units() == 0
	})
}

// every calls a function each pollUnsent until it returns true.
func every(done func() bool) {
	time.AfterFunc(pollUnsent, func() {
		if !done() {
			every(done)
		}
	})
}

// left returns how many bytes the kernel holds for the client; 0 if the client is gone.
func (c *conn) left() int64 {
	n := 0 // stays so if the connection is closed
	control(c, func(fd int) {
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && info.State != unix.BPF_TCP_CLOSE {
			n, _ = unix.IoctlGetInt(fd, unix.TIOCOUTQ)
		}
	})
	return int64(n)
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
	began := time.Now()
	every(func() bool {
		done := c.left() == 0 || time.Since(began) > timelimits.Write
		if done {
			c.evict()
		}
		return done
	})
	_ = c.SetReadDeadline(time.Now()) // a Read ends, as after any Close
	return c.CloseWrite()
}

// waits says that the server waits for the client, until busy.
func (c *conn) waits() {
	if c != nil {
		c.ticket.Evictable(c.evict)
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

func (c *conn) busy() {
	if c != nil {
		c.ticket.Busy()
	}
}

func (c *conn) Write(b []byte) (int, error) {
	p := refusal(b)
	if p == nil {
		return c.write(b)
	}
	c.rest() // net/http waits before it closes the connection
	return len(b), Refuse(c.TCPConn, p)
}
