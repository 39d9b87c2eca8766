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

// RequestIDHeader is the HTTP header with the id of a request. If the client sends no valid id
// (see requestID), the server makes one. The answer and the calls to log-server have the same id.
const RequestIDHeader = "X-Request-Id"

// longestID is the maximum length of a caller's request id: the length of a UUID. An API key or
// token is longer, so requestID rejects it and nobody logs it. Known limit: if a caller sends a
// salt of up to 36 hex digits as its request id, the salt is logged.
const longestID = 36

// work is one HTTP request, or one run of deadline-worker on a deal. LogHandler adds
// request_id and deal_id to the log lines of this request or run.
type work struct {
	id     string
	deal   atomic.Pointer[string]
	waited atomic.Int64 // nanoseconds recorded by NoteWait
}

type workKey struct{}

// WithRequestID returns a context for a new HTTP request, or a new run of deadline-worker on a
// deal, with this request id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, workKey{}, &work{id: id})
}

// NewRequestID returns a random id of 16 letters and digits.
func NewRequestID() string { return rand.Text()[:16] }

// requestID returns the caller's id if it consists of 1 to 36 letters, digits and dashes, and
// otherwise a new id.
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

// NoteDeal adds the deal's id to the span in ctx and to later log lines of the same request.
// dealID MUST have the form of a deal id. A deal id is not a secret. It gives no access
// without a credential, and does not reveal the deal's entry in the transparency log.
func NoteDeal(ctx context.Context, dealID string) {
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		w.deal.Store(&dealID)
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(attribute.String("fairpact.deal_id", dealID))
	}
}

// NoteWait records that the request in ctx waited for the duration `d`, because the client asked to
// wait for a change of the deal. Took subtracts `d`.
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

// LogHandler adds request_id, deal_id and trace_id to log lines, if the context of the
// line has them.
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
