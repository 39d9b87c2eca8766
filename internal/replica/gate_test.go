package replica

import (
	"context"
	"strings"
	"testing"
	"time"

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
	const lifetime = 2 * time.Second
	sets := newKeys(t).sets(t)
	url, table := newTable(t, lifetime)
	first := openGate(t, url, sets["before"], lifetime)
	first.mustPass(t)
	first.vanish()

	g := openGate(t, url, sets["promoted"], lifetime)
	refused := g.refusedSoon(t)
	if !strings.Contains(refused.Error(), first.me.name) {
		t.Errorf("%v, want the name of %s", refused, first.me.name)
	}
	if got := measured(t); got != 1 {
		t.Errorf("fairpact_replica_disagreements is %v, want 1", got)
	}
	if err := g.Ready(); err == nil || !strings.Contains(err.Error(), "signs nothing") {
		t.Errorf("ready: %v", err)
	}
	if err := g.signs(t, patience); err == nil || !strings.Contains(err.Error(), "add-next") {
		t.Errorf("signed while a live row disagrees: %v", err)
	}
	g.mustPass(t)
	var age float64
	if err := table.pool.QueryRow(t.Context(), "SELECT extract(epoch FROM clock_timestamp() - seen_at)::float8 FROM replica.members WHERE name = $1", first.me.name).Scan(&age); err != nil || age < lifetime.Seconds() {
		t.Errorf("passed when the row was %v s old (%v), want %s", age, err, lifetime)
	}
	if err := g.Ready(); err != nil {
		t.Error(err)
	}
	if got := measured(t); got != 0 {
		t.Errorf("fairpact_replica_disagreements is %v, want 0", got)
	}
	if err := g.signs(t, patience); err != nil {
		t.Error(err)
	}
}

func measured(t *testing.T) float64 {
	t.Helper()
	var m dto.Metric
	if err := disagreements.Write(&m); err != nil {
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
	quick := timesFor(time.Second)
	quick.lifetime = long
	second, err := open(t.Context(), url, "deal-api", stamp{}, sets["promoted"], quiet, quick)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	second.refusedSoon(t)
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
	if err := g.signs(t, patience); err != nil {
		t.Errorf("within the lease: %v", err)
	}
	for end := time.Now().Add(patience); ; {
		err := g.signs(t, 10*time.Millisecond)
		if err != nil {
			if !strings.Contains(err.Error(), "no lease to sign") {
				t.Error(err)
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
