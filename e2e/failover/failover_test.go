//go:build long

package failover

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// Twice, the primary crashes under load and its synchronous standby is promoted. The
// processes find the new primary without a restart.
func TestSynchronousStandbyLosesNothing(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	e2e.Must(t, primary.Synchronous(t.Context(), true))
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.DatabaseURL = localservers.PrimaryURL("fairpact", primary, standby)
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
		o.Env[localstack.LogServer] = e2e.PostgresGuard(t)
	})
	pids := map[string]int{}
	for _, name := range stack.Names() {
		pids[name] = stack.PID(name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*e2e.DefaultTimeout)
	defer cancel()
	clients := []*e2e.Client{e2e.NewClient(t, stack.URL(localstack.DealAPI)), e2e.NewClient(t, stack.URL(e2e.SecondAPI))}
	logs := []*e2e.Client{e2e.NewClient(t, stack.LogReadURL(localstack.LogServer)), e2e.NewClient(t, stack.LogReadURL(e2e.SecondLog))}
	var seen heads
	watching, over := context.WithCancel(ctx)
	watched := seen.watch(watching, t, append(logs, clients...)...)
	s := e2e.StartStream(ctx, t, stack, clients...)

	for range 2 {
		e2e.Must(t, s.Passes(ctx, 400))
		e2e.Must(t, primary.Followed(ctx))
		primary.Kill()
		killed := time.Now()
		e2e.Must(t, standby.Promote(ctx))
		promoted := time.Now()
		for _, client := range clients {
			e2e.Must(t, answers(ctx, client))
			t.Logf("%s: first success %s after the promotion, %s after the crash", client.Base,
				time.Since(promoted).Round(time.Millisecond), time.Since(killed).Round(time.Millisecond))
		}
		e2e.Must(t, s.Passes(ctx, 200))
		port := primary.Port()
		e2e.Must(t, primary.Close())
		next, err := standby.StartStandby(ctx, localservers.Options{Port: port})
		e2e.Must(t, err)
		t.Cleanup(func() { e2e.Must(t, next.Close()) })
		primary, standby = standby, next
		e2e.Must(t, primary.Synchronous(ctx, true))
	}
	e2e.Must(t, s.Passes(ctx, 200))
	s.End(t, stack)
	over()
	watched()
	seen.stand(e2e.OpenDB(t, stack))
	for name, pid := range pids {
		if stack.PID(name) != pid {
			t.Errorf("%s was restarted: its process is now %d, want %d", name, stack.PID(name), pid)
		}
	}
}

// A lagging asynchronous standby is promoted. The fork guard logs the reason and refuses to
// sign, so no published tree head contradicts an earlier tree head. When the old primary is
// back, the service continues.
func TestLaggingStandbyIsRefused(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.DatabaseURL = localservers.PrimaryURL("fairpact", primary, standby)
		o.Env[localstack.LogServer] = guarded(t)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*e2e.DefaultTimeout)
	defer cancel()
	client := e2e.NewClient(t, stack.BaseURL())
	var seen heads
	watching, over := context.WithCancel(ctx)
	watched := seen.watch(watching, t, client, e2e.NewClient(t, stack.LogReadURL(localstack.LogServer)))

	client.ComputedDeal().Certified(e2e.DefaultTimeout)
	connected := func(p *localservers.Postgres, do func(*pgx.Conn) error) {
		t.Helper()
		conn, err := pgx.Connect(ctx, p.URL("fairpact"))
		e2e.Must(t, err)
		defer conn.Close(ctx)
		e2e.Must(t, do(conn))
	}
	published := func(p *localservers.Postgres) (size int64) {
		t.Helper()
		connected(p, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "SELECT max(tree_size) FROM translog.tree_heads").Scan(&size)
		})
		return size
	}
	e2e.Eventually(t, "the standby has the first certificate", e2e.DefaultTimeout, func() bool { return published(standby) == published(primary) })
	for _, statement := range []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"} {
		connected(standby, func(conn *pgx.Conn) error { _, err := conn.Exec(ctx, statement); return err })
	}
	e2e.Eventually(t, "the standby lags", e2e.DefaultTimeout, func() bool {
		client.ComputedDeal().Certified(e2e.DefaultTimeout)
		return published(standby) < published(primary)-2
	})
	signed, lagging := published(primary), published(standby)

	primary.Kill()
	e2e.Must(t, standby.Promote(ctx))
	e2e.Must(t, answers(ctx, client))
	lost := client.ComputedDeal() // the deal's leaf gets an index that a tree head of the old primary already covers
	e2e.Eventually(t, "the fork guard refuses, and the log says so", e2e.DefaultTimeout, func() bool {
		text, err := os.ReadFile(stack.Log(localstack.LogServer))
		e2e.Must(t, err)
		return bytes.Contains(text, []byte("the database is older than what was signed")) &&
			e2e.Sum(e2e.Scrape(t, stack, localstack.LogServer)["fairpact_log_guard_refusals_total"]) > 0 // the metric of the alert FairpactForkGuardRefused
	})
	for range 3 { // the fork guard must keep refusing to sign
		if a := client.Do("GET", lost.Path("/certificate"), lost.Tokens[0], nil); a.Code() != "CERT_NOT_READY" {
			t.Fatalf("GET certificate on the lagging standby: %d %s, want CERT_NOT_READY", a.Status, a.Body)
		}
		e2e.Must(t, answers(ctx, client))
	}
	if size := published(standby); size != lagging {
		t.Errorf("the lagging standby has heads up to size %d, want %d as before", size, lagging)
	}

	e2e.Must(t, standby.Stop())
	e2e.Must(t, primary.Restart(ctx))
	e2e.Must(t, answers(ctx, client))
	client.ComputedDeal().Certified(e2e.DefaultTimeout)
	over()
	watched()
	e2e.OpenDB(t, stack).Converged()
	seen.stand(e2e.OpenDB(t, stack))
	e2e.Invariants(t, stack)
	t.Logf("heads of size %d were signed, the standby had %d", signed, lagging)
}
