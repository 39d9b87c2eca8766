package replica

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/signing"
)

func TestMain(m *testing.M) {
	if os.Getenv(asMember) != "" {
		signForEver()
		return
	}
	os.Exit(servertest.Main(m))
}

// patience bounds a wait that ends as soon as the thing is there.
const patience = time.Minute

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// keys are the labels of two keys of a rotation and of a stranger.
type keys struct{ old, new, foreign string }

func newKeys(t *testing.T) keys {
	t.Helper()
	var labels []string
	for range 3 {
		signer, err := signing.Open(t.Context(), "dev://"+filepath.Join(t.TempDir(), "key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		labels = append(labels, signer.PublicKey())
	}
	return keys{labels[0], labels[1], labels[2]}
}

// sets are the key sets of a rotation, by the step that makes them.
func (k keys) sets(t *testing.T) map[string]*signing.KeySet {
	t.Helper()
	entry := func(key, rest string) string { return `{"pubkey":"` + key + `",` + rest + `}` }
	oldSigns, newSigns := entry(k.old, `"state":"current"`), entry(k.new, `"state":"current"`)
	sets := map[string]*signing.KeySet{}
	for name, list := range map[string]string{
		"before":    oldSigns,
		"published": oldSigns + "," + entry(k.new, `"state":"next"`),
		"promoted":  newSigns + "," + entry(k.old, `"state":"retired","retired_at":1795257295`),
		"closed":    newSigns + "," + entry(k.old, `"state":"retired","retired_at":1795257295,"tree_size":4711`),
		"foreign":   entry(k.foreign, `"state":"current"`),
	} {
		set, err := signing.ParseKeySet([]byte(`{"keys":[` + list + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		sets[name] = set
	}
	return sets
}

func memberWith(set *signing.KeySet) member {
	return member{name: newName(), kind: "deal-api", signsWith: set.Current(), accepts: set.Accepted()}
}

// newTable is an empty table, whose rows live for as long.
func newTable(t *testing.T, lifetime time.Duration) (url string, made table) {
	t.Helper()
	url = servertest.Postgres(t)
	if err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return url, table{pool, lifetime}
}

func (t table) mustAnnounce(test *testing.T, m member) []opponent {
	test.Helper()
	against, err := t.announce(test.Context(), m, true)
	if err != nil {
		test.Fatal(err)
	}
	return against
}

// hang makes all writes of rows wait, as for a database that does not answer.
func (t table) hang(test *testing.T) (unlock func()) {
	test.Helper()
	conn, err := t.pool.Acquire(test.Context())
	if err != nil {
		test.Fatal(err)
	}
	if _, err := conn.Exec(test.Context(), strings.Replace(lockSQL, "_xact_", "_", 1)); err != nil {
		test.Fatal(err)
	}
	unlock = sync.OnceFunc(func() {
		if _, err := conn.Exec(context.Background(), "SELECT pg_advisory_unlock_all()"); err != nil {
			test.Error(err)
		}
		conn.Release()
	})
	test.Cleanup(unlock)
	return unlock
}

// stamp signs, and blocks while it is told to.
type stamp struct{ wait chan struct{} }

func (s stamp) Sign(context.Context, [32]byte) (string, error) {
	if s.wait != nil {
		s.wait <- struct{}{}
		<-s.wait
	}
	return "signed", nil
}

func openGate(t *testing.T, url string, set *signing.KeySet, lifetime time.Duration) *Gate {
	t.Helper()
	return openWith(t, url, set, timesFor(lifetime))
}

// openQuick opens a gate that beats often, and for which rows live long.
func openQuick(t *testing.T, url string, set *signing.KeySet) *Gate {
	t.Helper()
	return openWith(t, url, set, quickTimes())
}

func quickTimes() times {
	quick := timesFor(time.Second)
	quick.lifetime, quick.try = long, patience
	return quick
}

func openWith(t *testing.T, url string, set *signing.KeySet, times times) *Gate {
	t.Helper()
	g, err := open(t.Context(), url, "deal-api", stamp{}, set, quiet, times)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if g.closed.Err() == nil {
			g.Close()
		}
	})
	return g
}

func (g *Gate) mustPass(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if !g.Passed(ctx) {
		t.Fatalf("never passed: %v", g.Ready())
	}
}

// vanish ends a gate as kill -9 does: its row stays.
func (g *Gate) vanish() {
	g.end()
	g.loop.Wait()
	g.table.pool.Close()
}

// refusedAnew waits until the gate is refused by an answer that is still to come.
func (g *Gate) refusedAnew(t *testing.T) (refused error) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		g.awaitAnswers(t, 3)
		g.mu.Lock()
		refused = g.refused
		g.mu.Unlock()
		if refused != nil {
			return refused
		}
	}
	t.Fatalf("never refused: %v", g.Ready())
	return nil
}

// awaitAnswers waits until the table has answered, as often, what is still to come.
func (g *Gate) awaitAnswers(t *testing.T, number int) {
	t.Helper()
	end := time.After(patience)
	for range number {
		g.mu.Lock()
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-end:
			t.Fatalf("no answer: %v", g.Ready())
		}
	}
}

// signs asks for one signature.
func (g *Gate) signs(t *testing.T, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	signature, err := g.Sign(ctx, [32]byte{1})
	if err == nil && signature != "signed" || err != nil && signature != "" {
		t.Fatalf("signature %q, %v", signature, err)
	}
	if err != nil && !errors.Is(err, signing.ErrUnavailable) {
		t.Fatalf("%v, want ErrUnavailable", err)
	}
	return err
}
