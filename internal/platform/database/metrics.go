package database

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
)

var newest atomic.Pointer[pgxpool.Pool]

func init() { prometheus.MustRegister(poolStats{}) }

var up = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "fairpact_database_up", Help: "1 while Postgres answers this process within 3 s, checked every 5 s.",
})

// watch sets the gauge until the pool is closed. The readiness check cannot: nothing calls it
// outside a cluster.
func watch(pool *pgxpool.Pool) {
	ctx, end := context.WithCancel(context.Background())
	telemetry.WatchServer(ctx, up, func(ctx context.Context) error {
		_, err := pool.Exec(ctx, "SELECT 1")
		if errors.Is(err, puddle.ErrClosedPool) {
			end()
		}
		return err
	})
}

// poolStats collects the pool's own counters at each scrape, without a query.
type poolStats struct{}

var (
	connections = prometheus.NewDesc("fairpact_database_connections", "Connections of the pool to Postgres by state: idle, acquired, or max (the limit of the pool).", []string{"state"}, nil)
	waited      = prometheus.NewDesc("fairpact_database_acquire_wait_seconds_total", "Seconds that calls waited for a connection because none was idle.", nil, nil)
)

func (poolStats) Describe(to chan<- *prometheus.Desc) { to <- connections; to <- waited }

func (poolStats) Collect(to chan<- prometheus.Metric) {
	pool := newest.Load()
	if pool == nil {
		return
	}
	s := pool.Stat()
	gauge := func(state string, n int32) {
		to <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(n), state)
	}
	gauge("idle", s.IdleConns())
	gauge("acquired", s.AcquiredConns())
	gauge("max", s.MaxConns())
	to <- prometheus.MustNewConstMetric(waited, prometheus.CounterValue, s.EmptyAcquireWaitTime().Seconds())
}
