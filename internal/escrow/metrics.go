package escrow

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairpact/fairpact/internal/deal"
)

var (
	dealsEnded = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "fairpact_deals_ended_total", Help: "Deals that this process ended, by final state.",
	}, []string{"state"})
	endedBy = map[deal.State]prometheus.Counter{
		deal.Computed: dealsEnded.WithLabelValues(string(deal.Computed)), deal.Void: dealsEnded.WithLabelValues(string(deal.Void)),
		deal.Expired: dealsEnded.WithLabelValues(string(deal.Expired)), deal.Cancelled: dealsEnded.WithLabelValues(string(deal.Cancelled)),
	}
	lateness = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "fairpact_deadline_lateness_seconds", Help: "Delay between a deadline and its processing, by the database's clock.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600},
	})
	inputsUnopened = promauto.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_inputs_unopened_total", Help: "Attempts to use a stored input that failed because it does not open.",
	})
	inputsResealed = promauto.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_inputs_resealed_total", Help: "Stored inputs that this process resealed under the server secret in force.",
	})
	formerSecrets = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_former_server_secrets", Help: "Former server secrets that something stored still needs; 0 after a rotation has ended, and on a standby.",
	})
	certificatesIssued = promauto.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_certificates_issued_total", Help: "Certificates whose leaf this process stored.",
	})
)

// noteLateness measures a step of the clock that was due at dueAt (unix seconds)
// and is taken at atMilli.
func noteLateness(dueAt, atMilli int64) {
	if late := atMilli - dueAt*1000; late >= 0 {
		lateness.Observe(float64(late) / 1000)
	}
}
