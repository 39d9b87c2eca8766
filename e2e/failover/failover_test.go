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
	"github.com/fairpact/fairpact/internal/localservers"
	"github.com/fairpact/fairpact/internal/localstack"
)

// The primary dies under load and its synchronous standby is promoted, there and
// back. Nothing that was acknowledged is lost, every tree head stands, and the
// binaries find the new primary by themselves.
func TestSynchronousStandbyLosesNothing(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	must(t, primary.Synchronous(t.Context(), true))
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.DatabaseURL = localservers.PrimaryURL("fairpact", primary, standby)
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
		o.Env[localstack.LogServer], o.Env[e2e.SecondLog] = guarded(t), []string{"FAIRPACT_FORK_GUARD="}
	})
	pids := map[string]int{}
	for _, name := range stack.Names() {
		pids[name] = stack.PID(name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*e2e.Patience)
	defer cancel()
	doors := []*e2e.Client{e2e.NewClient(t, stack.URL(localstack.DealAPI)), e2e.NewClient(t, stack.URL(e2e.SecondAPI))}
	logs := []*e2e.Client{e2e.NewClient(t, stack.LogReadURL(localstack.LogServer)), e2e.NewClient(t, stack.LogReadURL(e2e.SecondLog))}
	var seen heads
	watching, over := context.WithCancel(ctx)
	watched := seen.watch(watching, t, append(logs, doors...)...)
	l := start(ctx, t, stack, doors...)

	for range 2 {
		must(t, l.s.Passes(ctx, 400))
		must(t, primary.Followed(ctx))
		primary.Kill()
		killed := time.Now()
		must(t, standby.Promote(ctx))
		promoted := time.Now()
		for _, door := range doors {
			must(t, answers(ctx, door))
			t.Logf("%s: first success %s after the promotion, %s after the crash", door.Base,
				time.Since(promoted).Round(time.Millisecond), time.Since(killed).Round(time.Millisecond))
		}
		must(t, l.s.Passes(ctx, 200))
		port := primary.Port()
		must(t, primary.Close())
		next, err := standby.StartStandby(ctx, localservers.Options{Port: port})
		must(t, err)
		t.Cleanup(func() { must(t, next.Close()) })
		primary, standby = standby, next
		must(t, primary.Synchronous(ctx, true))
	}
	must(t, l.s.Passes(ctx, 200))
	l.ended(t, stack)
	over()
	watched()
	seen.stand(e2e.Database(t, stack))
	for name, pid := range pids {
		if stack.PID(name) != pid {
			t.Errorf("%s was restarted", name)
		}
	}
	t.Logf("%d deals, %d requests, %d heads", len(l.all), l.s.Attempts.Load(), len(seen.seen))
}

// An asynchronous standby lags and is promoted: the fork guard refuses to sign, and
// says so. Nothing that contradicts a published head is ever published, and with
// the old primary back everything goes on.
func TestLaggingStandbyIsRefused(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.DatabaseURL = localservers.PrimaryURL("fairpact", primary, standby)
		o.Env[localstack.LogServer] = guarded(t)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*e2e.Patience)
	defer cancel()
	door := e2e.NewClient(t, stack.BaseURL())
	var seen heads
	watching, over := context.WithCancel(ctx)
	watched := seen.watch(watching, t, door, e2e.NewClient(t, stack.LogReadURL(localstack.LogServer)))
	play := func() *e2e.Dealt {
		d := door.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
		d.Play(e2e.AnnsValues, e2e.BobsValues)
		return d
	}

	play().Certified(e2e.Patience)
	admin := func(p *localservers.Postgres, sql string) {
		t.Helper()
		conn, err := pgx.Connect(ctx, p.URL("fairpact"))
		must(t, err)
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, sql)
		must(t, err)
	}
	published := func(p *localservers.Postgres) (size int64) {
		t.Helper()
		conn, err := pgx.Connect(ctx, p.URL("fairpact"))
		must(t, err)
		defer conn.Close(ctx)
		must(t, conn.QueryRow(ctx, "SELECT max(tree_size) FROM translog.tree_heads").Scan(&size))
		return size
	}
	e2e.Eventually(t, "the standby has the first certificate", e2e.Patience, func() bool { return published(standby) == published(primary) })
	admin(standby, "ALTER SYSTEM SET primary_conninfo = ''")
	admin(standby, "SELECT pg_reload_conf()")
	e2e.Eventually(t, "the standby lags", e2e.Patience, func() bool {
		play().Certified(e2e.Patience)
		return published(standby) < published(primary)-2
	})
	signed, lagging := published(primary), published(standby)

	primary.Kill()
	must(t, standby.Promote(ctx))
	must(t, answers(ctx, door))
	lost := play() // committed on the standby, in a leaf that may not be signed
	e2e.Eventually(t, "the fork guard refuses, and the log says so", e2e.Patience, func() bool {
		text, err := os.ReadFile(stack.Log(localstack.LogServer))
		must(t, err)
		return bytes.Contains(text, []byte("the database is older than what was signed")) &&
			e2e.Sum(e2e.Scrape(t, stack, localstack.LogServer)["fairpact_log_guard_refusals_total"]) > 0 // alert FairpactForkGuardRefused
	})
	for range 3 { // and goes on refusing
		if a := door.Do("GET", lost.Path("/certificate"), lost.Tokens[0], nil); a.Code() != "CERT_NOT_READY" {
			t.Fatalf("on the lagging standby a certificate is answered %d %s", a.Status, a.Body)
		}
		must(t, answers(ctx, door))
	}
	if size := published(standby); size != lagging {
		t.Errorf("the lagging standby had heads up to %d and now up to %d", lagging, size)
	}

	must(t, standby.Stop())
	must(t, primary.Restart(ctx))
	must(t, answers(ctx, door))
	play().Certified(e2e.Patience)
	over()
	watched()
	e2e.Database(t, stack).Converged()
	seen.stand(e2e.Database(t, stack))
	e2e.Invariants(t, stack)
	t.Logf("heads of size %d were signed, the standby had %d", signed, lagging)
}
