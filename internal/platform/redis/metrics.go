package redis

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	reachable = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_redis_up", Help: "1 while Redis answers, checked every 5 s.",
	})
	failures = promauto.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_redis_errors_total", Help: "Redis commands that failed; no API call fails because of them.",
	})
	dropped = promauto.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_announcements_dropped_total", Help: "Deal changes that this process failed to announce to the other processes. Waiting calls in those processes see the change some seconds late.",
	})
)
