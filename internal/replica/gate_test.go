package replica

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const long = 10 * time.Minute // a lifetime that no test outlasts

// What a dead process left costs nothing to who agrees with it.
func TestDeadRowThatAgrees(t *testing.T) {
	t.Parallel()
	sets := newKeys(t).sets(t)
	url, _ := newTable(t, long)
	first := openGate(t, url, sets["published"], long)
	first.mustPass(t)
	first.vanish()
	for _, name := range []string{"before", "published", "promoted"} {
		g := openGate(t, url, sets[name], long)
		g.mustPass(t)
		if err := g.signs(t, patience); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		g.Close()
	}
}

// Who disagrees with it waits until the row is dead, not ready and signing
// nothing, and then goes in by itself.
func TestDeadRowThatDisagrees(t *testing.T) {
	sets := newKeys(t).sets(t)
	url, table := newTable(t, long)
	first := openGate(t, url, sets["before"], long)
	first.mustPass(t)
	first.vanish()
	aged := func(d time.Duration) {
		t.Helper()
		if _, err := table.pool.Exec(t.Context(), "UPDATE replica.members SET seen_at = clock_timestamp() - make_interval(secs => $1) WHERE name = $2", d.Seconds(), first.me.name); err != nil {
			t.Fatal(err)
		}
	}

	g := openQuick(t, url, sets["promoted"])
	for _, age := range []time.Duration{0, long - time.Minute} {
		aged(age)
		refused := g.refusedAnew(t)
		if !strings.Contains(refused.Error(), first.me.name) {
			t.Errorf("%v, want the name of %s", refused, first.me.name)
		}
		if got := measured(t, disagreements); got != 1 {
			t.Errorf("fairpact_replica_disagreements is %v, want 1", got)
		}
		if err := g.Ready(); err == nil || !strings.Contains(err.Error(), "signs nothing") {
			t.Errorf("ready: %v", err)
		}
		if err := g.signs(t, patience); err == nil || !strings.Contains(err.Error(), "add-next") {
			t.Errorf("signed while a live row disagrees: %v", err)
		}
		select {
		case <-g.passed:
			t.Fatalf("passed while the row was %s old", age)
		default:
		}
	}
	aged(long)
	g.mustPass(t)
	if err := g.Ready(); err != nil {
		t.Error(err)
	}
	if got := measured(t, disagreements); got != 0 {
		t.Errorf("fairpact_replica_disagreements is %v, want 0", got)
	}
	if err := g.signs(t, patience); err != nil {
		t.Error(err)
	}
}

func measured(t *testing.T, gauge prometheus.Gauge) float64 {
	t.Helper()
	var m dto.Metric
	if err := gauge.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

// A stop takes the row away, so that who disagrees need not wait, and lets
// nothing out that was being signed.
func TestStop(t *testing.T) {
	t.Parallel()
	sets := newKeys(t).sets(t)
	url, _ := newTable(t, long)
	slow := stamp{wait: make(chan struct{})}
	first, err := open(t.Context(), url, "log-server", slow, sets["before"], quiet, timesFor(long))
	if err != nil {
		t.Fatal(err)
	}
	first.mustPass(t)
	second := openQuick(t, url, sets["promoted"])
	second.refusedAnew(t)
	underWay := make(chan error, 1)
	go func() {
		_, err := first.Sign(context.WithoutCancel(t.Context()), [32]byte{1})
		underWay <- err
	}()
	<-slow.wait
	first.Close()
	close(slow.wait)
	if err := <-underWay; err == nil || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("signed after the stop: %v", err)
	}
	second.mustPass(t)
	if err := first.signs(t, patience); err == nil {
		t.Error("signs after the stop")
	}
}

// A row that disagrees stops signatures and no answers, unless it signs with a
// key that this process does not accept: then what it answers may be wrong.
func TestRowThatDisagreesWithOneThatRuns(t *testing.T) {
	keys := newKeys(t)
	url, table := newTable(t, long)
	g := openQuick(t, url, keys.sets(t)["published"])
	g.mustPass(t)
	if _, err := table.pool.Exec(t.Context(), "INSERT INTO replica.members VALUES ('stray', 'deal-api', $1, '{}', clock_timestamp())", keys.new); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		signsWith string
		ready     bool
	}{{keys.new, true}, {keys.foreign, false}, {keys.old, true}} {
		if _, err := table.pool.Exec(t.Context(), "UPDATE replica.members SET signs_with = $1 WHERE name = 'stray'", row.signsWith); err != nil {
			t.Fatal(err)
		}
		g.refusedAnew(t)
		if err := g.Ready(); (err == nil) != row.ready || err != nil && !strings.Contains(err.Error(), "stray") {
			t.Errorf("ready: %v, want %v", err, row.ready)
		}
		if err := g.signs(t, patience); err == nil || !strings.Contains(err.Error(), "stray") {
			t.Errorf("signed while a live row disagrees: %v", err)
		}
		if got := measured(t, disagreements); got != 1 {
			t.Errorf("fairpact_replica_disagreements is %v, want 1", got)
		}
	}
	// The database's clock was set back, or somebody forged the row.
	if _, err := table.pool.Exec(t.Context(), "UPDATE replica.members SET signs_with = $1, seen_at = clock_timestamp() + interval '1 year' WHERE name = 'stray'", keys.foreign); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		err := g.signs(t, patience)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a row of next year is live: %v", err)
		}
	}
	if err := g.Ready(); err != nil {
		t.Error(err)
	}
	openQuick(t, url, keys.sets(t)["published"]).mustPass(t)
	var left int
	if err := table.pool.QueryRow(t.Context(), "SELECT count(*) FROM replica.members WHERE name = 'stray'").Scan(&left); err != nil || left != 0 {
		t.Errorf("the row of next year is kept for ever (%v)", err)
	}
}

// A database that does not answer for less than a lease costs nothing. After
// that nothing is signed until it answers, and then at once, in place.
func TestDatabaseIsAway(t *testing.T) {
	t.Parallel()
	const lifetime = 3 * time.Second
	sets := newKeys(t).sets(t)
	url, table := newTable(t, lifetime)
	g := openGate(t, url, sets["before"], lifetime)
	g.mustPass(t)

	unlock := table.hang(t)
	for end := time.Now().Add(patience); ; {
		err := g.signs(t, 10*time.Millisecond)
		if err != nil {
			g.mu.Lock()
			age := time.Since(g.began)
			g.mu.Unlock()
			if age < lifetime/2 || !strings.Contains(err.Error(), "no lease to sign") {
				t.Errorf("after %s: %v", age, err)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("signs for ever without a lease")
		}
	}
	if err := g.Ready(); err != nil {
		t.Errorf("nobody refused it, and it is not ready: %v", err)
	}
	signed := make(chan error, 1)
	go func() { signed <- g.signs(t, patience) }()
	unlock()
	if err := <-signed; err != nil {
		t.Errorf("after the return: %v", err)
	}
}

func TestNoSchema(t *testing.T) {
	t.Parallel()
	url, table := newTable(t, long)
	if _, err := table.pool.Exec(t.Context(), "DROP SCHEMA replica CASCADE"); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), url, "deal-api", stamp{}, newKeys(t).sets(t)["before"], quiet)
	if err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("%v, want a word on fairpactctl migrate", err)
	}
}

// A lease is over by either clock.
func TestElapsed(t *testing.T) {
	now := time.Now()
	if got := elapsed(now.Add(-time.Minute)); got < time.Minute {
		t.Errorf("%s", got)
	}
	if got := elapsed(now.Round(0).Add(-time.Minute)); got < time.Minute {
		t.Errorf("by the wall clock: %s", got)
	}
}

// A process that cannot announce itself is ready, as nobody refused it, and
// signs nothing: a gauge says so.
func TestNoLeaseIsMeasured(t *testing.T) {
	url, table := newTable(t, long)
	rename := func(from, to string) {
		t.Helper()
		if _, err := table.pool.Exec(t.Context(), "ALTER TABLE replica."+from+" RENAME TO "+to); err != nil {
			t.Fatal(err)
		}
	}
	await := func(want float64) {
		t.Helper()
		for end := time.Now().Add(patience); measured(t, lease) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("fairpact_replica_lease is not %v", want)
			}
		}
	}
	g := openQuick(t, url, newKeys(t).sets(t)["before"])
	g.mustPass(t)
	await(1)
	rename("members", "away")
	await(0)
	if err := g.signs(t, time.Millisecond); err == nil || !strings.Contains(err.Error(), "no lease to sign") {
		t.Errorf("signed: %v", err)
	}
	if err := g.Ready(); err != nil {
		t.Errorf("nobody refused it, and it is not ready: %v", err)
	}
	rename("away", "members")
	await(1)
	g.Close()
	await(0)
}
