package escrow

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairpact/fairpact/internal/rules/deal"
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
		Name: "fairpact_deadline_lateness_seconds", Help: "Seconds between a deadline and its processing, by the database's clock.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600},
	})
	inputsLost = promauto.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_inputs_unopened_total", Help: "Failed attempts to decrypt a stored input; attempts during resealing are not counted.",
	})
	inputsResealed = promauto.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_inputs_resealed_total", Help: "Stored inputs that this process encrypted again under the active server secret.",
	})
	formerSecrets = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_former_server_secrets", Help: "Former server secrets that stored data still needs. Only the deadline-worker that holds the Lease counts them; any other process shows 0.",
	})
	certificatesIssued = promauto.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_certificates_issued_total", Help: "Certificates whose leaf this process stored.",
	})
)
