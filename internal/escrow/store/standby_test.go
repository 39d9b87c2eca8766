package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/escrow/store"
)

// If a transaction's wait for the synchronous standby is cancelled, Postgres sends only a
// warning, although a failover may lose the transaction. The store returns UNAVAILABLE. A
// retry with the same Idempotency-Key also gets UNAVAILABLE until a standby has the
// transaction.
func TestUnreplicatedCommitIsUnknown(t *testing.T) {
	primary := servertest.StartPostgres(t)
	url, err := primary.EnsureDatabase(t.Context(), "fairpact")
	check(t, err)
	check(t, store.Migrate(t.Context(), url))
	standby, err := primary.StartStandby(t.Context(), localservers.Options{})
	check(t, err)
	t.Cleanup(func() { check(t, standby.Close()) })
	check(t, primary.Synchronous(t.Context(), true))
	f := &fixture{Store: open(t, url)}
	d := f.create(t, nil)
	admin, err := pgx.Connect(t.Context(), primary.AdminURL())
	check(t, err)
	t.Cleanup(func() { check(t, admin.Close(context.WithoutCancel(t.Context()))) })

	check(t, standby.Stop())
	replay := store.Replay{Scope: random32(), Body: random32(), Response: []byte("x"), Lifetime: 60}
	for _, write := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"batch", func(ctx context.Context) error { return second(f.Commit(ctx, act(d, 0))) }},
		{"query", func(ctx context.Context) error { return second(f.CreateDeal(ctx, newDeal(f.now(t), nil))) }},
		{"exec", func(ctx context.Context) error { return f.InsertKey(ctx, random32(), &replay) }},
		{"its replay", func(ctx context.Context) error { return second(f.FindReplay(ctx, replay.Scope, nil)) }},
	} {
		unavailable(t, write.what, interrupted(t, admin, "pg_cancel_backend", write.do))
	}
	unavailable(t, "terminated", interrupted(t, admin, "pg_terminate_backend", func(ctx context.Context) error {
		return second(f.Commit(ctx, act(d, 1)))
	}))

	// A write that waits longer than the interval of the check shows in the metric.
	unavailable(t, "seen", interrupted(t, admin, "pg_cancel_backend", func(ctx context.Context) error {
		return second(f.Commit(ctx, act(d, 1)))
	}, func() bool { return gauge(t, "fairpact_database_standby_wait_seconds") > 0 }))

	check(t, standby.Restart(t.Context()))
	found, err := f.FindReplay(t.Context(), replay.Scope, nil)
	if err != nil || string(found.Response) != "x" {
		t.Errorf("FindReplay with a standby: got response %q, %v; want %q", found.Response, err, "x")
	}
	result, err := f.Commit(t.Context(), act(d, 0))
	if err != nil || result.Done {
		t.Errorf("a second Commit = %+v, %v; want not Done, because the commit of unknown outcome was stored", result, err)
	}
}

// interrupted starts a write and, when `once` holds, interrupts its wait for the standby with the SQL
// function `by`, for example pg_cancel_backend.
func interrupted(t *testing.T, admin *pgx.Conn, by string, write func(context.Context) error, once ...func() bool) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- write(t.Context()) }()
	for len(once) > 0 && !once[0]() {
		select {
		case err := <-ended:
			return fmt.Errorf("the write has ended before: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	for {
		_, err := admin.Exec(t.Context(), "SELECT "+by+"(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		check(t, err)
		select {
		case err := <-ended:
			return err
		default:
		}
	}
}

func gauge(t *testing.T, name string) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	check(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
