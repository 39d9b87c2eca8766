package replica

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	disagreements = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_replica_disagreements",
		Help: "Running processes whose key set does not fit this one's, when the database last answered. While it is not 0 this process signs nothing; whether it may sign says fairpact_replica_lease.",
	})
	lease = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_replica_lease",
		Help: "1 while this process may sign; 0 while it has not announced itself to the other replicas: it is kept out, or the database does not take its row.",
	})
)
