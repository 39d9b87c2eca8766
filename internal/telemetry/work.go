package telemetry

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// RequestIDHeader names a request. It is taken over from who calls, answered,
// and passed on to log-server.
const RequestIDHeader = "X-Request-Id"

// longestID is a UUID's length. Together with the characters that an id may have
// it keeps our keys and tokens out, which are longer and hold an underscore. A
// bare salt or nonce in hex has the form of an id: whoever sends one as the name
// of a request has it logged.
const longestID = 36

// work is what the log lines of one request, or of one turn of the worker at a
// deal, have in common.
type work struct {
	id     string
	deal   atomic.Pointer[string]
	waited atomic.Int64 // nanoseconds
}

type workKey struct{}

// WithRequestID begins a piece of work.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, workKey{}, &work{id: id})
}

// NewRequestID is a random id of 16 letters and digits.
func NewRequestID() string { return rand.Text()[:16] }

// requestID takes a caller's id where it is 1 to 36 letters, digits and dashes,
// and makes one otherwise.
func requestID(h http.Header) string {
	id := h.Get(RequestIDHeader)
	if id == "" || len(id) > longestID {
		return NewRequestID()
	}
	for _, c := range []byte(id) {
		if c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return NewRequestID()
		}
	}
	return id
}

// NoteDeal says which deal the work is about, to its log lines from here on and
// to its span. The id MUST have the form of one. It opens nothing without a
// credential of the deal, and of the 128 bits that keep a log entry from being
// guessed the certificate's own id holds as many; log-server is told neither.
func NoteDeal(ctx context.Context, dealID string) {
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		w.deal.Store(&dealID)
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(attribute.String("fairpact.deal_id", dealID))
	}
}

// NoteWait says that the work has waited for others, as its caller asked: that is
// none of the time that an answer takes.
func NoteWait(ctx context.Context, d time.Duration) {
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		w.waited.Add(int64(d))
	}
}

// Took is the time since the work in ctx began at began, without what it waited.
func Took(ctx context.Context, began time.Time) time.Duration {
	took := time.Since(began)
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		took -= time.Duration(w.waited.Load())
	}
	return took
}

// Propagate writes what joins a call to another of our binaries with the work
// that it is part of: the request id, and the trace where there is one.
func Propagate(ctx context.Context, h http.Header) {
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		h.Set(RequestIDHeader, w.id)
	}
	otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(h))
}

// LogHandler adds request_id, deal_id and trace_id to the lines of a request,
// as far as the context that they were logged with knows them.
func LogHandler(next slog.Handler) slog.Handler { return logHandler{next} }

type logHandler struct{ slog.Handler }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		r.AddAttrs(slog.String("request_id", w.id))
		if deal := w.deal.Load(); deal != nil {
			r.AddAttrs(slog.String("deal_id", *deal))
		}
	}
	if at := trace.SpanContextFromContext(ctx); at.IsSampled() {
		r.AddAttrs(slog.String("trace_id", at.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name)}
}
