package replica

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var disagreements = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "fairpact_replica_disagreements",
	Help: "Running processes whose key set does not fit this one's: while it is not 0 this process signs nothing.",
})
