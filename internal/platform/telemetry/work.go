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

// RequestIDHeader is the HTTP header with the id of a request, of its answer and of its calls to
// log-server. If the client sends no valid id, the server makes one.
const RequestIDHeader = "X-Request-Id"

// longestID is the length of a UUID. An API key or token is longer, so nobody logs it. Known limit:
// a salt of up to 36 hex digits that a caller sends as its request id is logged.
const longestID = 36

// work is one HTTP request, or one run of deadline-worker on a deal.
type work struct {
	id     string
	deal   atomic.Pointer[string]
	waited atomic.Int64 // nanoseconds recorded by NoteWait
}

type workKey struct{}

// WithRequestID returns a context for new work.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, workKey{}, &work{id: id})
}

// NewRequestID returns a random id of 16 letters and digits.
func NewRequestID() string { return rand.Text()[:16] }

// requestID returns the caller's id if it is 1 to 36 letters, digits and dashes, or a new one.
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

// NoteDeal adds the deal's id, which is no secret, to the span in ctx and to later log lines of
// the same work. dealID MUST have the form of a deal id.
func NoteDeal(ctx context.Context, dealID string) {
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		w.deal.Store(&dealID)
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(attribute.String("fairpact.deal_id", dealID))
	}
}

// NoteWait records a long poll, which Took subtracts.
func NoteWait(ctx context.Context, d time.Duration) {
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		w.waited.Add(int64(d))
	}
}

// Took returns the time since `began`, minus the waits that NoteWait recorded in ctx.
func Took(ctx context.Context, began time.Time) time.Duration {
	took := time.Since(began)
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		took -= time.Duration(w.waited.Load())
	}
	return took
}

// Propagate sets the headers of a call to another binary: the request id and, if there
// is one, the trace.
func Propagate(ctx context.Context, h http.Header) {
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		h.Set(RequestIDHeader, w.id)
	}
	otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(h))
}

// LogHandler adds request_id, deal_id and trace_id of the context to log lines.
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
