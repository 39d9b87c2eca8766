package limits

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

type body struct {
	io.ReadCloser
	call  *Call
	pool  *pool
	ctx   context.Context
	conn  *http.ResponseController
	until time.Time

	// Only Read and takeStep use these fields, so they need no lock.
	size   int64 // Content-Length in bytes; -1: not known
	read   int64
	end    int64     // how far Read may read before the next takeStep
	placed time.Time // when the body got its place; zero: not yet

	mu sync.Mutex
	// mu guards the fields below. Read may run after Call.End, but MUST NOT acquire anything after
	// the method release has run.
	small int64 // bytes of pool.small
	large int64 // bytes of pool.large
	place bool  // whether the body has a place
	ended bool
}

// Read reads at most to the next step. It returns a problem.Error at a bound.
func (b *body) Read(p []byte) (int, error) {
	if b.hasEnded() {
		return 0, io.EOF
	}
	if b.read == 0 || b.read == b.end {
		if b.read == b.end && b.read != b.size {
			if err := b.takeStep(); err != nil {
				return 0, err
			}
		}
		deadline := time.Now().Add(b.call.process.stepTime)
		if deadline.After(b.until) {
			deadline = b.until
		}
		_ = b.conn.SetReadDeadline(deadline) // fails only in tests, where there is no connection
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), max(b.end-b.read, 1))])
	b.read += int64(n)
	if b.read <= step {
		if refused := b.hold(b.pool.small, &b.small, int64(n)); refused != nil {
			return 0, refused
		}
	}
	if err == io.EOF {
		b.mu.Lock()
		b.ended = true
		b.mu.Unlock()
		if b.read > step { // wait for a slot, because a large body takes long to parse as JSON
			if refused := b.call.acquireSlot(b.ctx, b.pool.slots); refused != nil {
				return n, refused
			}
		}
	}
	return n, err
}

func (b *body) hasEnded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

func (b *body) hold(free *semaphore.Weighted, held *int64, bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return io.EOF
	}
	if !free.TryAcquire(bytes) {
		return errBytes
	}
	*held += bytes
	return nil
}

var errBytes = problem.New(problem.Overloaded, "too many bytes are being sent to this service at the moment; send the same request again in a few seconds").WithRetryAfter(2)

// takeStep lets Read read one more step of a large body. The first takeStep waits for a place of
// the network. A later one fails if the body has had its place for longer than slotTimeout and
// another body of the network waits.
func (b *body) takeStep() error {
	places, network := b.pool.places, b.call.network
	if b.placed.IsZero() {
		waiting, cancel := context.WithTimeout(b.ctx, slotTimeout)
		defer cancel()
		if places.Wait(waiting, network) != nil {
			return b.crowded()
		}
		if !b.keepPlace() {
			places.Leave(network)
			return io.EOF
		}
		b.placed = time.Now()
	} else if time.Since(b.placed) > slotTimeout && places.Waits(network) {
		return b.crowded()
	}
	if err := b.hold(b.pool.large, &b.large, step); err != nil {
		return err
	}
	b.end += step
	return nil
}

func (b *body) crowded() error {
	// The read deadline may have passed. Without a new one, net/http could not read the rest
	// of the body, and the client would lose the answer.
	_ = b.conn.SetReadDeadline(time.Now().Add(time.Second))
	return problem.New(problem.Overloaded, "your network is sending %d other large bodies at the moment; send the same request again in a few seconds", networkBodies).WithRetryAfter(2)
}

// keepPlace returns false if the method release has run meanwhile.
func (b *body) keepPlace() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.place = !b.ended
	return b.place
}

func (b *body) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.place {
		b.pool.places.Leave(b.call.network)
		b.place = false
	}
	b.pool.small.Release(b.small)
	b.pool.large.Release(b.large)
	b.small, b.large, b.ended = 0, 0, true
}

// ReadAll reads a body of at most limit bytes. It allocates memory for a large body only as
// the bytes arrive, because the client may stop sending. Errors of ReadAll are problem.Errors.
func ReadAll(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var all bytes.Buffer
	all.Grow(int(min(max(r.ContentLength, 0), limit, step)) + bytes.MinRead)
	_, err := all.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, problem.New(problem.BodyTooLarge, "the body is over %d bytes; send a smaller one", limit)
	}
	if refused, ok := errors.AsType[*problem.Error](err); ok {
		return nil, refused
	}
	if err != nil {
		return nil, problem.New(problem.InvalidJSON, "the body arrived too slowly or incompletely; send it again").WithCause(err)
	}
	return all.Bytes(), nil
}
