// Package limits bounds what all callers together can make one process hold and
// compute, whoever they are: the bytes of bodies in memory, how slowly a body may
// arrive, and how many large bodies are worked on at once. What one caller may
// take in a minute is package caller's.
package limits

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairpact/fairpact/internal/problem"
)

const (
	bodyBytes = 64 << 20        // of all bodies in memory as far as they are small, and again of what large ones have more
	step      = 64 << 10        // bytes that are accounted for at a time; a body with more is large
	stepTime  = 5 * time.Second // that a step may take to arrive
	turnTime  = 5 * time.Second // that a large body waits to be worked on
)

// Bodies bounds the bodies of requests in one process.
type Bodies struct {
	small    *semaphore.Weighted // bytes: the first step of each body, as it arrives
	large    *semaphore.Weighted // bytes: the further steps of large ones, so that these push out no small one
	turns    *semaphore.Weighted // of large bodies that have arrived
	stepTime time.Duration
}

// NewBodies makes the bounds of one process.
func NewBodies() *Bodies {
	return &Bodies{semaphore.NewWeighted(bodyBytes), semaphore.NewWeighted(bodyBytes), semaphore.NewWeighted(2 * int64(runtime.GOMAXPROCS(0))), stepTime}
}

// Hold accounts for the request's body from now on, as far as it is read. release
// MUST be called when the request is answered. A body that is refused fails its
// reader with a problem.Error.
func (b *Bodies) Hold(w http.ResponseWriter, r *http.Request) (release func()) {
	if r.Body == nil || r.Body == http.NoBody {
		return func() {}
	}
	held := &body{ReadCloser: r.Body, of: b, ctx: r.Context(), conn: http.NewResponseController(w), whole: r.ContentLength}
	r.Body = held
	return held.release
}

// body is a body as it arrives.
type body struct {
	io.ReadCloser
	of   *Bodies
	ctx  context.Context
	conn *http.ResponseController

	whole int64 // bytes that the request says there are; -1: it does not say
	read  int64 // bytes
	small int64 // bytes held of the first step, all that was read of it
	large int64 // bytes held of further steps; read <= step + large
	turn  bool
	ended bool
}

// Read reads at most to the end of a step.
func (b *body) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	end := step + b.large
	if b.read == 0 || b.read == end {
		if b.read == end && b.read != b.whole {
			if !b.of.large.TryAcquire(step) {
				return 0, errBytes
			}
			b.large += step
			end += step
		}
		_ = b.conn.SetReadDeadline(time.Now().Add(b.of.stepTime)) // a writer without a connection has none
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), max(end-b.read, 1))])
	b.read += int64(n)
	if b.read <= step {
		if !b.of.small.TryAcquire(int64(n)) {
			return 0, errBytes
		}
		b.small += int64(n)
	}
	if err == io.EOF {
		b.ended = true
		// The server watches the connection while the request is answered: with the
		// last step's deadline it would take it for closed.
		_ = b.conn.SetReadDeadline(time.Time{})
		if refused := b.takeTurn(); refused != nil {
			return n, refused
		}
	}
	return n, err
}

var errBytes = problem.New(problem.Overloaded, "too many bytes are being sent to this service at the moment; send the same request again in a few seconds").After(2)

// takeTurn waits for a turn if the body is large: what it costs to read JSON
// grows with it.
func (b *body) takeTurn() error {
	if b.read <= step {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.ctx, turnTime)
	defer cancel()
	if b.of.turns.Acquire(ctx, 1) != nil {
		return problem.New(problem.Overloaded, "too many large requests are being answered at the moment; send the same request again in a few seconds").After(2)
	}
	b.turn = true
	return nil
}

func (b *body) release() {
	if b.turn {
		b.of.turns.Release(1)
	}
	b.of.small.Release(b.small)
	b.of.large.Release(b.large)
	b.small, b.large, b.turn, b.ended = 0, 0, false, true
}

// ReadAll reads a body of at most limit bytes. A small one takes memory once; a
// large one as it arrives, since its sender may stop.
func ReadAll(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var all bytes.Buffer
	all.Grow(int(min(max(r.ContentLength, 0), limit, step)) + bytes.MinRead)
	_, err := all.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	return all.Bytes(), err
}
