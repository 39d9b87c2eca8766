package translog

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/translog/forkguard"
)

func openGuard(t *testing.T, uri string) (forkguard.Guard, forkguard.Record) {
	t.Helper()
	g := of(forkguard.Open(uri)).ok(t)
	t.Cleanup(func() { _ = g.Close() })
	return g, of(g.Load(t.Context())).ok(t)
}

// restoredDump returns a deployment with the same keys on a database that is restored from a dump of this one.
func (d *deployment) restoredDump(t *testing.T) func() *deployment {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dump")
	run := func(name string, arguments ...string) {
		t.Helper()
		if said, err := exec.CommandContext(t.Context(), name, arguments...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, said)
		}
	}
	run("pg_dump", "--format=custom", "--file="+file, d.url)
	return func() *deployment {
		url := servertest.Postgres(t)
		run("pg_restore", "--dbname="+url, file)
		return &deployment{url: url, pool: openPool(t, url), signer: d.signer, keys: d.keys}
	}
}

// refuses appends an entry to a replica that must not sign a head, and checks that the error says why.
func (d *deployment) refuses(t *testing.T, l *Log, gate *gatedSigner, n int, says ...string) {
	t.Helper()
	signed := gate.count.Load()
	_, err := l.Append(within(t, time.Minute), entryOf(n), d.sign(t, entryOf(n)), Tag(entryOf(n)))
	if !errors.Is(err, errGuarded) || gate.count.Load() != signed {
		t.Errorf("append entry %d: %v, %d heads were signed; want a refusal by the guard and no signature", n, err, gate.count.Load()-signed)
		return
	}
	for _, word := range append(says, "runbooks/fork-guard.md") {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("append entry %d: %v, want %q in the error", n, err, word)
		}
	}
	requireNoContradiction(t, l)
}

// Two clusters run on one log, each with a guard of its own. Only the cluster whose guard the database names
// signs, also after a restore of a dump that lacks leaves, and whatever FAIRPACT_FORK_GUARD_INIT says.
func TestTwoClustersSignOneHistory(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	guardA, a := openGuard(t, "file://"+filepath.Join(t.TempDir(), "guard.json"))
	guardB, b := openGuard(t, servertest.Postgres(t))
	if a.Guard == "" || b.Guard == "" || a.Guard == b.Guard {
		t.Fatalf("identities %q and %q, want two different ones", a.Guard, b.Guard)
	}
	logA, gateA := d.guarded(t, guardA, nil)
	d.mustAppend(t, logA, 0, 1, 2, 3, 4, 5, 6, 7)

	eight := int64(8)
	logB, gateB := d.guarded(t, guardB, &eight)
	d.refuses(t, logB, gateB, 8, a.Guard, b.Guard, "stop this log-server")
	older := d.restoredDump(t)
	d.mustAppend(t, logA, 9, 10)
	logB.Close()

	restored := older()
	onOlder, gate := restored.guarded(t, guardA, nil)
	restored.refuses(t, onOlder, gate, 20, "the database is older than what was signed")
	onOlder.Close()
	logB, gateB = restored.guarded(t, guardB, &eight)
	restored.refuses(t, logB, gateB, 21, a.Guard, b.Guard)
	logB.Close()
	bare, gate := restored.guarded(t, nil, nil)
	restored.refuses(t, bare, gate, 22, a.Guard, "has none", "FAIRPACT_FORK_GUARD")
	var largest int64
	check(t, restored.pool.QueryRow(t.Context(), "SELECT max(tree_size) FROM translog.tree_heads").Scan(&largest))
	if largest != 8 {
		t.Errorf("the restored copy has a head of size %d, want none above 8", largest)
	}

	// The log moves to B: the record is copied, and an explicit command names both guards.
	if err := MoveGuard(t.Context(), d.pool, b.Guard, a.Guard); !errors.Is(err, ErrRefused) {
		t.Errorf("a move from a guard that the log does not have: %v, want ErrRefused", err)
	}
	record := of(guardA.Load(t.Context())).ok(t)
	check(t, guardB.Store(t.Context(), b, record))
	logB, _ = d.guarded(t, guardB, nil)
	check(t, MoveGuard(t.Context(), d.pool, a.Guard, b.Guard))
	d.mustAppend(t, logB, 11)
	d.refuses(t, logA, gateA, 12, a.Guard, b.Guard)
	d.mustAppend(t, logB, 12, 13)
	requireNoContradiction(t, logA, logB)
	if got := of(GuardOf(t.Context(), d.pool)).ok(t); got != b.Guard {
		t.Errorf("the log's guard is %q, want B's %q", got, b.Guard)
	}
}
