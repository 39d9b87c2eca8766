package waiting

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	waitingCalls = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_waiting_calls", Help: "Calls that wait for a change of a deal.",
	})
	looks = promauto.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_waiting_looks_total", Help: "SQL statements that read the deals of waiting calls.",
	})
)
