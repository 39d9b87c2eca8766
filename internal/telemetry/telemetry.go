// Package telemetry is what an operator sees of a call: its metrics, its span,
// its request id, and what its log lines have in common. Every metric and span
// that is one package's own stands beside what it measures.
//
// A label of a metric, a span's name and an attribute MUST come from a list that
// this code knows: a route, a tool, a code of the table. No label text or secret
// is ever one, and no id but a deal's, which spans and log lines have and metrics
// have not. That is why the spans of calls are made here: otelhttp would record
// the path, query, host and user agent that a stranger sent.
package telemetry

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairpact/fairpact/internal/version"
)

// Seconds are the buckets of what takes milliseconds and may take half a minute.
var Seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

var (
	build = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_build_info", Help: "Build of this process; always 1.",
	}, []string{"binary", "version", "revision"})
	requests = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "fairpact_http_requests_total", Help: "Calls by route pattern, method and status.",
	}, []string{"route", "method", "status"})
	durations = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fairpact_http_request_duration_seconds", Help: "Time to answer a call, without what it waited for a change of its deal.", Buckets: Seconds,
	}, []string{"route", "method"})
	inFlight = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_http_requests_in_flight", Help: "Calls under way.",
	})
)

// Binary says what runs.
func Binary(name string) {
	build.WithLabelValues(name, version.Version, version.Commit()).Set(1)
}

// traced is set before anything is traced.
var traced atomic.Bool

// Trace says that spans are sent somewhere.
func Trace() { traced.Store(true) }

// Traced reports whether they are.
func Traced() bool { return traced.Load() }

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/telemetry")

// Call is a call under way.
type Call struct {
	began time.Time
	span  trace.Span
	ctx   context.Context
}

// Begin counts a call as under way and gives its request with what names it; End
// MUST follow. The answer carries the request id. The trace of a caller outside
// the deployment is linked to and not joined, so that a stranger decides nothing
// about what is sampled.
func Begin(w http.ResponseWriter, r *http.Request, outside bool) (*http.Request, Call) {
	inFlight.Inc()
	id := requestID(r.Header)
	w.Header().Set(RequestIDHeader, id)
	ctx := WithRequestID(r.Context(), id)
	if !Traced() {
		return r.WithContext(ctx), Call{time.Now(), trace.SpanFromContext(ctx), ctx} // a span that does nothing
	}
	from := trace.SpanContextFromContext(otel.GetTextMapPropagator().Extract(ctx, propagation.HeaderCarrier(r.Header)))
	from = from.WithTraceState(trace.TraceState{}) // free text
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

// Other is the route or method of a call that is none of ours.
const Other = "other"

// End counts the call and ends its span. route is a pattern that the program
// names; empty: Other.
func (c Call) End(route, method string, status int) {
	inFlight.Dec()
	s := find(series{orOther(route), known(method), status})
	s.count.Inc()
	s.duration.Observe(Took(c.ctx, c.began).Seconds())
	if c.span.IsRecording() {
		c.span.SetName(known(method) + " " + orOther(route))
		c.span.SetAttributes(attribute.String("http.request.method", known(method)), attribute.String("http.route", orOther(route)),
			attribute.Int("http.response.status_code", status))
		if status >= 500 {
			c.span.SetStatus(codes.Error, http.StatusText(status))
		}
	}
	c.span.End()
}

type series struct {
	route, method string
	status        int
}

type resolved struct {
	count    prometheus.Counter
	duration prometheus.Observer
}

// The series are few and looked up at each call: without the text of a status
// and the hash of three labels.
var (
	mu  sync.RWMutex
	all = map[series]resolved{}
)

func find(s series) resolved {
	mu.RLock()
	found, ok := all[s]
	mu.RUnlock()
	if ok {
		return found
	}
	found = resolved{requests.WithLabelValues(s.route, s.method, strconv.Itoa(s.status)), durations.WithLabelValues(s.route, s.method)}
	mu.Lock()
	all[s] = found
	mu.Unlock()
	return found
}

func orOther(route string) string {
	if route == "" {
		return Other
	}
	return route
}

func known(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return method
	}
	return Other
}
