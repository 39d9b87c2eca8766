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
	"net/http"
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
	build = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_build_info", Help: "Build of this process; always 1.",
	}, []string{"binary", "version", "revision"})
	requests = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "fairpact_http_requests_total", Help: "Calls by route pattern, method and status.",
	}, []string{"route", "method", "status"})
	durations = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fairpact_http_request_duration_seconds", Help: "Seconds to answer a call, without the time that the call waited for a change of its deal.", Buckets: Seconds,
	}, []string{"route", "method"})
	inFlight = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_http_requests_in_flight", Help: "Calls in flight.",
	})
)

// Binary sets fairpact_build_info.
func Binary(name string) {
	build.WithLabelValues(name, version.Version, version.Commit()).Set(1)
}

// WatchServer sets `up` to 1 while a server answers `ping` within 3 s, and otherwise to 0. It
// asks every 5 s until ctx ends.
func WatchServer(ctx context.Context, up prometheus.Gauge, ping func(context.Context) error) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := ping(once)
		cancel()
		switch {
		case err == nil:
			up.Set(1)
		case ctx.Err() == nil:
			up.Set(0)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

var traced atomic.Bool

// Trace declares that this process exports spans. Call Trace before the first span starts.
func Trace() { traced.Store(true) }

// Traced reports whether spans are exported.
func Traced() bool { return traced.Load() }

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/platform/telemetry")

// Call is an HTTP call in flight, from Begin to End.
type Call struct {
	began time.Time
	span  trace.Span
	ctx   context.Context
}

// Begin counts an HTTP call as in flight, sets X-Request-Id, and returns the request with its id
// and a span in the context. The caller MUST call End after the answer. If outside is true, the
// span only links to the client's trace, so that a stranger cannot decide what is sampled.
func Begin(w http.ResponseWriter, r *http.Request, outside bool) (*http.Request, Call) {
	inFlight.Inc()
	id := requestID(r.Header)
	w.Header().Set(RequestIDHeader, id)
	ctx := WithRequestID(r.Context(), id)
	if !Traced() {
		return r.WithContext(ctx), Call{time.Now(), trace.SpanFromContext(ctx), ctx} // a span that does nothing
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
	ctx, span := tracer.Start(ctx, known(r.Method), options...)
	return r.WithContext(ctx), Call{time.Now(), span, ctx}
}

// Other stands for an unknown route or method.
const Other = "other"

// End counts the call and ends its span. `route` is a pattern, or empty for Other.
func (c Call) End(route, method string, status int) {
	route, method = cmp.Or(route, Other), known(method)
	inFlight.Dec()
	requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	durations.WithLabelValues(route, method).Observe(Took(c.ctx, c.began).Seconds())
	if c.span.IsRecording() {
		c.span.SetName(method + " " + route)
		c.span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route), attribute.Int("http.response.status_code", status))
		if status >= 500 {
			c.span.SetStatus(codes.Error, http.StatusText(status))
		}
	}
	c.span.End()
}

func known(method string) string {
	if slices.Contains([]string{"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"}, method) {
		return method
	}
	return Other
}
