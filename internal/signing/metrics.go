package signing

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	callSeconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "fairpact_signing_duration_seconds",
		Help:    "Duration of one signing call to the key's provider. Each retry is a separate call and counts against the provider's quota.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
	}, []string{"provider"})

	requests = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "fairpact_signing_requests_total",
		Help: "Requested signatures, by outcome: ok, timeout, unavailable (includes an open breaker), refused, invalid, canceled.",
	}, []string{"provider", "outcome"})

	breakerOpen = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_signing_breaker_open",
		Help: "1 while the circuit breaker is open: several calls to the key's provider failed in a row, so signing fails immediately, without a call to the provider.",
	}, []string{"provider"})

	keySetInfo = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_signing_key_set",
		Help: "Always 1. The digest label identifies this process's key set. All processes should show the same digest.",
	}, []string{"digest"})

	keysUnusable = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_signing_keys_unusable",
		Help: "Number of keys that sign now or later and that this process could not open.",
	})
)

// countFromZero creates the series of a provider with the value 0. Otherwise the first
// failure would create a series at 1, in which Prometheus sees no increase.
func countFromZero(scheme string) {
	for _, ending := range []string{"ok", "timeout", "unavailable", "refused", "invalid", "canceled"} {
		requests.WithLabelValues(scheme, ending)
	}
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrProvider):
		return "invalid"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, ErrUnavailable), errors.Is(err, errClosed):
		return "unavailable"
	}
	return "refused"
}
