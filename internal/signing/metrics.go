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
		Help:    "Time of one call to the key's provider, each retry a call: its count is what the provider's quota sees.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
	}, []string{"provider"})

	requests = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "fairpact_signing_requests_total",
		Help: "Signatures asked for, by how it ended: ok, timeout, unavailable (an open breaker's answer included), refused, invalid, canceled.",
	}, []string{"provider", "outcome"})

	breakerOpen = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_signing_breaker_open",
		Help: "1 while the signer answers without asking its provider, because that failed again and again.",
	}, []string{"provider"})

	keySetInfo = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_signing_key_set",
		Help: "1 for the digest of the key set that this process has: all are to have the same.",
	}, []string{"digest"})

	keysUnusable = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_signing_keys_unusable",
		Help: "Keys of the set that sign now or later and that this process cannot use.",
	})
)

// countFromZero begins the series of a provider, so that the first failure of a
// kind is an increase: of a series that begins with 1 Prometheus sees none.
func countFromZero(scheme string) {
	for _, ending := range []string{"ok", "timeout", "unavailable", "refused", "invalid", "canceled"} {
		requests.WithLabelValues(scheme, ending)
	}
}

// outcome is the label of an error of Sign.
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
