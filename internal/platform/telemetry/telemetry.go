// Package telemetry makes the metrics, spans, request ids and log attributes that all calls
// have in common.
//
// A metric label, a span name and a span attribute MUST come from a fixed list, such as the
// routes. The only exception is a deal's id in a span. This package makes the spans of calls
// itself, because otelhttp would record what a stranger sent.
package telemetry

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairpact/fairpact/internal/platform/version"
)

// Seconds are histogram buckets for durations from milliseconds to half a minute.
var Seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

var (
	build    = NewGaugeVec("fairpact_build_info", "Build of this process; always 1.", "binary", "version", "revision")
	requests = NewCounterVec("fairpact_http_requests_total",
		"Calls by route pattern, method and status.", "route", "method", "status")
	durations = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fairpact_http_request_duration_seconds", Help: "Seconds to answer a call, without the time that the call waited for a change of its deal.", Buckets: Seconds,
	}, []string{"route", "method"})
	inFlight = NewGauge("fairpact_http_requests_in_flight", "Calls in flight.")
)

// NewGauge registers a gauge.
func NewGauge(name, help string) prometheus.Gauge {
	return promauto.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// NewGaugeVec registers a gauge with labels.
func NewGaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// NewCounter registers a counter.
func NewCounter(name, help string) prometheus.Counter {
	return promauto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// NewCounterVec registers a counter with labels.
func NewCounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Binary sets fairpact_build_info.
func Binary(name string) {
	build.WithLabelValues(name, version.Version, version.Commit()).Set(1)
}

// WatchServer sets `up` to 1 while a server answers `ping` within 3 s, and otherwise to 0. It
// asks every 5 s until ctx ends, and logs each change. Errors of `ping` MUST NOT show a password.
func WatchServer(ctx context.Context, server string, up prometheus.Gauge, ping func(context.Context) error) {
	watchServer(ctx, 5*time.Second, server, up, ping)
}

func watchServer(ctx context.Context, every time.Duration, server string, up prometheus.Gauge, ping func(context.Context) error) {
	answers := true
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := ping(once)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			up.Set(0)
			if answers {
				slog.Warn("a server does not answer this process", "server", server, "err", err)
			}
		default:
			up.Set(1)
			if !answers {
				slog.Info("a server answers this process again", "server", server)
			}
		}
		answers = err == nil
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

var traced atomic.Bool

// Trace declares that this process exports spans. Call it before the first span starts.
func Trace() { traced.Store(true) }

// Traced reports whether spans are exported.
func Traced() bool { return traced.Load() }

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/platform/telemetry")

// Call is an HTTP call in flight, from Begin to End.
type Call struct {
	began time.Time
	ctx   context.Context
}

// Begin counts an HTTP call as in flight, sets X-Request-Id, and returns the request with its id
// and a span in the context. The caller MUST call End after the answer. If outside is true, the
// span only links to the client's trace, so that a stranger cannot decide what is sampled.
func Begin(w http.ResponseWriter, r *http.Request, outside bool) (*http.Request, Call) {
	inFlight.Inc()
	id := r.Header.Get(RequestIDHeader)
	if !validID.MatchString(id) {
		id = NewRequestID()
	}
	w.Header().Set(RequestIDHeader, id)
	ctx := WithRequestID(r.Context(), id)
	if !Traced() {
		return r.WithContext(ctx), Call{time.Now(), ctx}
	}
	from := trace.SpanContextFromContext(otel.GetTextMapPropagator().Extract(ctx, propagation.HeaderCarrier(r.Header)))
	from = from.WithTraceState(trace.TraceState{}) // the trace state is free text of the client
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	switch {
	case !from.IsValid():
	case outside:
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: from}))
	default:
		ctx = trace.ContextWithRemoteSpanContext(ctx, from)
	}
	ctx, _ = tracer.Start(ctx, known(r.Method), options...)
	return r.WithContext(ctx), Call{time.Now(), ctx}
}

// other stands for an unknown route or method.
const other = "other"

// End counts the call and ends its span. `route` is a pattern, or empty for an unknown route.
func (c Call) End(route, method string, status int) {
	route, method = cmp.Or(route, other), known(method)
	inFlight.Dec()
	requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	durations.WithLabelValues(route, method).Observe(Took(c.ctx, c.began).Seconds())
	span := trace.SpanFromContext(c.ctx) // does nothing if no spans are exported
	if span.IsRecording() {
		span.SetName(method + " " + route)
		span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route), attribute.Int("http.response.status_code", status))
		if status >= 500 {
			span.SetStatus(codes.Error, http.StatusText(status))
		}
	}
	span.End()
}

func known(method string) string {
	if slices.Contains([]string{"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"}, method) {
		return method
	}
	return other
}

// RequestIDHeader is the HTTP header with the id of a request, of its answer and of its calls to
// log-server. If the client sends no valid id, the server makes one.
const RequestIDHeader = "X-Request-Id"

// validID matches ids up to the length of a UUID. An API key or token is longer, so nobody logs it.
// Known limit: a salt of up to 36 hex digits that a caller sends as its request id is logged.
var validID = regexp.MustCompile(`^[0-9A-Za-z-]{1,36}$`)

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
