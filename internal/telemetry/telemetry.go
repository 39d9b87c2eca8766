// Package telemetry holds the metrics that are not one package's own: the build,
// and the calls that arrive. Every other metric stands beside what it measures.
//
// A label MUST come from a list that this code knows: a route, a tool, a code of
// the table. No id, label text or secret is ever one.
package telemetry

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairpact/fairpact/internal/version"
)

// Seconds are the buckets of what takes milliseconds and may take half a minute.
var Seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

var (
	build = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_build_info", Help: "What runs here; always 1.",
	}, []string{"binary", "version", "revision"})
	requests = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "fairpact_http_requests_total", Help: "Calls by route pattern, method and status.",
	}, []string{"route", "method", "status"})
	durations = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fairpact_http_request_duration_seconds", Help: "Time to answer a call.", Buckets: Seconds,
	}, []string{"route", "method"})
	inFlight = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_http_requests_in_flight", Help: "Calls under way.",
	})
)

// Binary says what runs.
func Binary(name string) {
	build.WithLabelValues(name, version.Version, version.Commit()).Set(1)
}

// Call is a call under way.
type Call struct{ began time.Time }

// Begin counts a call as under way; End MUST follow.
func Begin() Call {
	inFlight.Inc()
	return Call{time.Now()}
}

// Other is the route or method of a call that is none of ours.
const Other = "other"

// End counts the call. route is a pattern that the program names; empty: Other.
func (c Call) End(route, method string, status int) {
	inFlight.Dec()
	s := find(series{orOther(route), known(method), status})
	s.count.Inc()
	s.duration.Observe(time.Since(c.began).Seconds())
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
