package database

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
)

// waits gives back the turn at the CPU of a call that waits for the database.
type waits struct{}

// TraceAcquireStart implements pgxpool.AcquireTracer.
func (waits) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	budget.From(ctx).Rest()
	return ctx
}

// TraceAcquireEnd implements pgxpool.AcquireTracer.
func (waits) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

// TraceQueryStart implements pgx.QueryTracer.
func (waits) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (waits) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// tracer is waits that also records a span for each statement that runs inside another span. The span omits the
// parameters, because they contain inputs and hashes. For a failed statement, the span shows
// the SQLSTATE but not the message.
type tracer struct{ *otelpgx.Tracer }

// failure replaces an error in a span, because Postgres messages quote values and connection
// errors name the user.
type failure struct{ pg *pgconn.PgError } // pg is nil if the error does not come from Postgres

func redacted(err error) error {
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return failure{&pgconn.PgError{Code: pg.Code}}
	}
	return failure{}
}

func (f failure) Error() string {
	if f.pg == nil {
		return "no answer from Postgres"
	}
	return "SQLSTATE " + f.pg.Code
}

// As lets otelpgx read the SQLSTATE for the span.
func (f failure) As(target any) bool {
	pg, ok := target.(**pgconn.PgError)
	if ok = ok && f.pg != nil; ok {
		*pg = f.pg
	}
	return ok
}

// TraceAcquireStart implements pgxpool.AcquireTracer.
func (t tracer) TraceAcquireStart(ctx context.Context, pool *pgxpool.Pool, data pgxpool.TraceAcquireStartData) context.Context {
	return waits{}.TraceAcquireStart(ctx, pool, data)
}

// TraceAcquireEnd implements pgxpool.AcquireTracer.
func (t tracer) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

func (t tracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	data.Err = redacted(data.Err)
	t.Tracer.TraceQueryEnd(ctx, conn, data)
}

func (t tracer) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	data.Err = redacted(data.Err)
	t.Tracer.TraceBatchQuery(ctx, conn, data)
}

func (t tracer) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	data.Err = redacted(data.Err)
	t.Tracer.TraceBatchEnd(ctx, conn, data)
}

func (t tracer) TraceCopyFromEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceCopyFromEndData) {
	data.Err = redacted(data.Err)
	t.Tracer.TraceCopyFromEnd(ctx, conn, data)
}

func (t tracer) TracePrepareEnd(ctx context.Context, conn *pgx.Conn, data pgx.TracePrepareEndData) {
	data.Err = redacted(data.Err)
	t.Tracer.TracePrepareEnd(ctx, conn, data)
}

func (t tracer) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	data.Err = redacted(data.Err)
	t.Tracer.TraceConnectEnd(ctx, data)
}

var newest atomic.Pointer[pgxpool.Pool]

func init() { prometheus.MustRegister(poolStats{}) }

var (
	up         = telemetry.NewGauge("fairpact_database_up", "1 while Postgres answers this process within 3 s, checked every 5 s.")
	commitWait = telemetry.NewGauge("fairpact_database_standby_wait_seconds",
		"For how long the oldest commit of this process's database role has waited for a synchronous standby, checked every 5 s; 0 if none waits.")
)

// watch sets the gauges until the pool is closed.
func watch(pool *pgxpool.Pool) {
	ctx, end := context.WithCancel(context.Background())
	telemetry.WatchServer(ctx, "Postgres", up, func(ctx context.Context) error {
		var waits float64
		err := pool.QueryRow(ctx, standbyWaitSQL).Scan(&waits)
		if errors.Is(err, puddle.ErrClosedPool) || errors.Is(err, context.Canceled) { // a pool that closes cancels its new connections
			end()
		}
		switch s := pool.Stat(); {
		case err == nil:
			commitWait.Set(waits)
		case s.AcquiredConns() < s.MaxConns(): // commits that wait for a standby may have taken all connections
			commitWait.Set(0)
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
