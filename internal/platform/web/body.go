package web

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	step     = 64 << 10        // bytes of a body
	stepTime = 5 * time.Second // longest time for each step of a body to arrive
)

// ReadAll reads a body of at most limit bytes. A body of at most budget.SmallBody bytes counts with its
// connection. For a larger one, ReadAll first takes a ticket for the call in the request's context.
// The errors are problem.Errors.
func ReadAll(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	b := bodyReader{body: r.Body, control: http.NewResponseController(w), until: time.Now().Add(timelimits.Body)}
	conn, call := connOf(r.Context()), budget.From(r.Context())
	size := r.ContentLength
	switch {
	case size == 0:
		return nil, nil
	case size < 0: // not known
		size = limit + 1
	case size > limit: // read on for a while: a client that still sends may not read the answer
		_, _ = io.CopyN(io.Discard, &b, limit)
		return nil, tooLarge(w, limit)
	}
	var all bytes.Buffer
	all.Grow(int(min(size, budget.SmallBody)) + bytes.MinRead) // without, ReadFrom would enlarge it once more at the end
	conn.waits()
	_, err := all.ReadFrom(io.LimitReader(&b, budget.SmallBody))
	conn.busy()
	if err == nil && all.Len() == budget.SmallBody && size > budget.SmallBody {
		if err := call.Hold(r.Context(), size+budget.SmallCall); err != nil {
			b.extend(time.Second) // so that net/http can read the rest, and the client gets the answer
			return nil, err
		}
		if r.ContentLength > 0 {
			all.Grow(int(size) - all.Len() + bytes.MinRead)
		}
		conn.waits()
		call.Blocked(func() { b.extend(-time.Second) })
		_, err = all.ReadFrom(io.LimitReader(&b, size-int64(all.Len())))
		conn.busy()
	}
	switch {
	case !call.Busy():
		b.extend(time.Second)
		return nil, problem.New(problem.Overloaded, "the body arrived slowly while others waited; send the same request again in a few seconds").WithRetryAfter(2)
	case int64(all.Len()) > limit:
		return nil, tooLarge(w, limit)
	case err != nil:
		return nil, problem.New(problem.InvalidJSON, "the body arrived too slowly or incompletely; send it again").WithCause(err)
	}
	return all.Bytes(), nil
}

func tooLarge(w http.ResponseWriter, limit int64) error {
	w.Header().Set("Connection", "close")
	return problem.New(problem.BodyTooLarge, "the body is over %d bytes; send a smaller one", limit)
}

// bodyReader bounds the time for each step of a body, and for all.
type bodyReader struct {
	body    io.Reader
	control *http.ResponseController
	until   time.Time
	read    int64
	end     int64 // up to which a read deadline is set
}

func (b *bodyReader) Read(p []byte) (int, error) {
	if b.read >= b.end {
		b.extend(min(stepTime, time.Until(b.until)))
		b.end = b.read + step
	}
	n, err := b.body.Read(p[:min(len(p), step)])
	b.read += int64(n)
	return n, err
}

// extend sets the read deadline. It fails only in tests, where there is no connection.
func (b *bodyReader) extend(d time.Duration) { _ = b.control.SetReadDeadline(time.Now().Add(d)) }

// requestBody notes whether the handler has read the body to its end, and drops its trailer then: net/http
// takes about a hundred bytes for each line, however short it is, and for each name that the header announces.
type requestBody struct {
	io.ReadCloser
	of    *http.Request // net/http's own, whose trailer it is
	ended bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended, b.of.Trailer = true, nil
	}
	return n, err
}

// leave bounds how long net/http reads the rest of the body before it sends the answer. Until then, the
// connection waits for its client.
func (b *requestBody) leave(w http.ResponseWriter) {
	if !b.ended {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
		connOf(b.of.Context()).waits()
	}
}
