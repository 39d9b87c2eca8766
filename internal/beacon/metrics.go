package beacon

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var fetches = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "fairpact_beacon_fetches_total", Help: "Beacon rounds requested from the relays, by outcome: ok, too_early or failed.",
}, []string{"outcome"})

var fetchedOK, fetchedEarly, fetchFailed = fetches.WithLabelValues("ok"), fetches.WithLabelValues("too_early"), fetches.WithLabelValues("failed")

func count(err error) {
	switch {
	case err == nil:
		fetchedOK.Inc()
	case errors.Is(err, ErrNotYet):
		fetchedEarly.Inc()
	default:
		fetchFailed.Inc()
	}
}
