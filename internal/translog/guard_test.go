package translog

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/fairpact/fairpact/internal/translog/forkguard"
)

// memoryGuard is a fork guard in memory. Its hooks are optional: Load calls g.load; Store calls
// g.before, replaces g.held, then calls g.after. Load and Store return the error of a hook.
type memoryGuard struct {
	forkguard.Guard     // nil; embedded only for the method Close, which the log never calls
	mu                  sync.Mutex
	held                forkguard.Record
	load, before, after func() error
	tried, stores       int
}

func (g *memoryGuard) Load(context.Context) (forkguard.Record, error) {
	g.mu.Lock()
	hook := g.load
	g.mu.Unlock()
	if err := do(hook); err != nil {
		return forkguard.Record{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held, nil
}

func (g *memoryGuard) Store(_ context.Context, loaded, next forkguard.Record) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tried++
	if err := do(g.before); err != nil {
		return err
	}
	if g.held != loaded {
		return forkguard.ErrMoved
	}
	g.held = next
	g.stores++
	return do(g.after)
}

func do(hook func() error) error {
	if hook == nil {
		return nil
	}
	return hook()
}

func once(f func() error) func() error {
	var did atomic.Bool
	return func() error {
		if did.Swap(true) {
			return nil
		}
		return f()
	}
}

func (g *memoryGuard) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

func (g *memoryGuard) size() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held.Size
}

func (d *deployment) guarded(t *testing.T, g forkguard.Guard, adopt *int64) (*Log, *gatedSigner) {
	t.Helper()
	gate := newGate(d)
	close(gate.pass)
	return d.openWith(t, openPool(t, d.url), gate, quiet, Options{Guard: g, Adopt: adopt}), gate
}

// logging starts a replica that logs to the builder. Close the replica before you read
// the builder.
func (d *deployment) logging(t *testing.T, logged *strings.Builder, g forkguard.Guard) *Log {
	t.Helper()
	return d.openWith(t, openPool(t, d.url), nil, slog.New(slog.NewTextHandler(logged, nil)), Options{Guard: g})
}

func TestFailedStoreOfTheGuardIsRetried(t *testing.T) {
	t.Parallel()
	fault := func() func() error { return once(func() error { return errors.New("connection reset") }) }
	for name, arm := range map[string]func(*memoryGuard){
		"no fault":                  func(g *memoryGuard) {},
		"fails and did not persist": func(g *memoryGuard) { g.before = fault() },
		"fails but persisted":       func(g *memoryGuard) { g.after = fault() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t)
			g := &memoryGuard{}
			l, _ := d.guarded(t, g, nil)
			d.mustAppend(t, l, 0)
			g.set(func() { arm(g) })
			got, head := d.mustAppend(t, l, 1), waitForHead(t, l, 2)
			g.set(func() {
				if got.LeafIndex != 1 || g.held.Size != 2 || g.held.Root != head.RootHash {
					t.Errorf("appended %+v, head %+v, guard at %+v; want leaf 1 and the guard at the head of size 2", got, head, g.held)
				}
			})
			requireNoContradiction(t, l)
		})
	}
}

func TestNothingIsSignedWithoutTheGuard(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	g := &memoryGuard{}
	l, gate := d.guarded(t, g, nil)
	d.mustAppend(t, l, 0)
	g.set(func() { g.load = func() error { return errors.New("the guard is down") } })
	signed := gate.count.Load()
	if _, err := l.Append(within(t, 500*time.Millisecond), entryOf(1), d.sign(t, entryOf(1)), Tag(entryOf(1))); !errors.Is(err, ErrUnavailable) {
		t.Errorf("append without the guard: %v, want ErrUnavailable", err)
	}
	if gate.count.Load() != signed {
		t.Error("a head was signed without the guard, want none")
	}
	if err := prove(t, l, 0); err != nil {
		t.Errorf("reading needs no guard: %v", err)
	}
	g.set(func() { g.load = nil })
	if got := d.mustAppend(t, l, 1); got.LeafIndex != 1 {
		t.Errorf("with the guard back: %+v, want leaf 1", got)
	}
	requireNoContradiction(t, l)
}

// If another program replaces the fork guard's record before each try to store a new one, no head
// is published. The publisher retries with backoff, and the error of Append names the reason.
func TestGuardThatIsAlwaysMovedIsAFailure(t *testing.T) {
	d := newDeployment(t)
	var logged strings.Builder
	g := &memoryGuard{}
	l := d.logging(t, &logged, g)
	d.mustAppend(t, l, 0)

	before, failed, began := 0, failuresCounted(t), time.Now()
	g.set(func() { before, g.before = g.tried, func() error { return forkguard.ErrMoved } })
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	defer leave()
	answered, signature := make(chan error, 1), d.sign(t, entryOf(1))
	go func() { answered <- second(l.Append(ctx, entryOf(1), signature, Tag(entryOf(1)))) }()
	eventually(t, "five rounds fail", func() bool { return failuresCounted(t) >= failed+5 })
	g.set(func() {
		took := time.Since(began)
		if tried, most := g.tried-before, guardAttempts*(maxLostRaces+2+int(took/publishBackoff)); tried > most {
			t.Errorf("%d Stores in %s, want at most %d", tried, took, most)
		}
	})
	leave()
	if err := <-answered; !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "another program wrote") {
		t.Errorf("append: %v, want ErrUnavailable that says who moved the guard", err)
	}
	g.set(func() { g.before = nil })
	if got := d.mustAppend(t, l, 1); got.LeafIndex != 1 {
		t.Errorf("with the guard writable again: %+v, want leaf 1", got)
	}
	requireNoContradiction(t, l)
	l.Close()
	if !strings.Contains(logged.String(), "no head was published") || !strings.Contains(logged.String(), "another program wrote") {
		t.Errorf("the replica logged, without the failed round and its reason:\n%s", logged.String())
	}
}

func failuresCounted(t *testing.T) float64 {
	t.Helper()
	var read dto.Metric
	check(t, publishFailures.Write(&read))
	return read.GetCounter().GetValue()
}

// If another replica publishes a larger head first, the slower replica reads the database
// again at once, without a warning and without backoff.
func TestLostRaceIsNoFailure(t *testing.T) {
	d := newDeployment(t)
	var logged strings.Builder
	g := &memoryGuard{}
	other, _ := d.guarded(t, g, nil)
	l := d.logging(t, &logged, g)
	d.mustAppend(t, l, 0)
	before, signature := failuresCounted(t), d.sign(t, entryOf(2))
	g.set(func() {
		g.load = once(func() error {
			return second(other.Append(within(t, time.Minute), entryOf(2), signature, Tag(entryOf(2))))
		})
	})
	d.mustAppend(t, l, 1)
	l.Close()
	if g.size() != 3 {
		t.Errorf("the replica was not overtaken: the guard is at %d", g.size())
	}
	if n := failuresCounted(t) - before; n != 0 || strings.Contains(logged.String(), "level=WARN") {
		t.Errorf("%v failures, want 0 and no warning; the replica logged:\n%s", n, logged.String())
	}
}

// A process died after it had committed leaves, before or after it recorded the new tree head in
// the fork guard. The next process publishes the leaves.
func TestCommittedLeavesArePublishedAtStart(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	check(t, third((&store{d.pool}).commit(t.Context(), candidatesOf(0, 300))))
	l, _ := d.guarded(t, &memoryGuard{}, nil)
	waitForHead(t, l, 0)
	checkHeadAndPaths(t, l, leavesOf(0, 300), []int{0, 255, 256, 299})
	l.Close()

	check(t, third((&store{d.pool}).commit(t.Context(), candidatesOf(300, 305))))
	l, _ = d.guarded(t, &memoryGuard{held: forkguard.Record{Size: 305, Root: root{305, refRoot(leavesOf(0, 305))}.head("").RootHash}}, nil)
	waitForHead(t, l, 305)
}

func (l *Log) lastFailure() error {
	l.publisher.mu.Lock()
	defer l.publisher.mu.Unlock()
	return l.publisher.lastErr
}

// The database is replaced by an older copy, which lacks leaves that a signed head covers. An
// append to the copy would give the index of such a leaf to another entry. So the guard refuses
// the next head of a running replica, and the append fails. The guard also refuses the heads of
// a new replica, even after other leaves were appended to the copy.
func TestOlderCopyIsRefused(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	g := &memoryGuard{}
	l, gate := d.guarded(t, g, nil)
	fill(t, l, 0, 3)
	d.mustAppend(t, l, 3, 4)
	signed := gate.count.Load()
	asOwner(t, d, "DELETE FROM translog.leaves WHERE leaf_index >= 3", "DELETE FROM translog.tree_heads WHERE tree_size > 3")
	setCommitted(t, d, leavesOf(0, 3))
	four := int64(4)
	if got, err := l.Inclusion(t.Context(), LeafQuery{LeafIndex: &four}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a leaf that is only in memory: %+v, %v; want ErrNotFound", got, err)
	}
	refusedBy := func(name string, l *Log, gate *gatedSigner, signed int64) {
		t.Helper()
		d.failAppend(t, l, 100, ErrInconsistent)
		if why := l.lastFailure(); !errors.Is(why, errGuarded) || gate.count.Load() != signed {
			t.Errorf("%s: %v, %d heads were signed; want a refusal by the guard and no signature", name, why, gate.count.Load()-signed)
		}
		requireNoContradiction(t, l)
		l.Close()
	}
	refusedBy("swapped under a replica", l, gate, signed)
	for _, c := range []struct {
		name string
		end  int
	}{{"smaller", 101}, {"of the same size", 102}, {"bigger", 104}} {
		check(t, third((&store{d.pool}).commit(t.Context(), candidatesOf(100, c.end))))
		l, gate := d.guarded(t, g, nil)
		eventually(t, c.name+" is refused", func() bool { return errors.Is(l.lastFailure(), errGuarded) })
		refusedBy(c.name, l, gate, 0)
	}
	if g.size() != 5 {
		t.Errorf("the guard is at %d, want 5", g.size())
	}
}

// A fork guard without a record is new or has lost its record. A log that has published leaves
// then signs no head until the operator sets Options.Adopt.
func TestGuardWithoutRecordNeedsTheOperator(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, openPool(t, d.url), nil)
	fill(t, l, 0, 3)
	l.Close()
	g := &memoryGuard{}
	r, gate := d.guarded(t, g, nil)
	_, err := r.Append(within(t, time.Minute), entryOf(3), d.sign(t, entryOf(3)), Tag(entryOf(3)))
	if !errors.Is(err, ErrInconsistent) || !strings.Contains(err.Error(), "FAIRPACT_FORK_GUARD_INIT") || gate.count.Load() != 0 || g.stores != 0 {
		t.Errorf("an empty guard on a published log: %v, %d heads signed; want ErrInconsistent that names FAIRPACT_FORK_GUARD_INIT, and none", err, gate.count.Load())
	}
	r.Close()

	// Options.Adopt must be the size of the newest published head. If the guard loses its record
	// again, the log refuses the old Adopt, because a larger head is published by then.
	adopt := int64(4)
	r, gate = d.guarded(t, g, &adopt)
	if _, err := r.Append(within(t, time.Minute), entryOf(3), d.sign(t, entryOf(3)), Tag(entryOf(3))); !errors.Is(err, ErrInconsistent) || gate.count.Load() != 0 {
		t.Errorf("adopting size 4 while 3 is published: %v, want ErrInconsistent", err)
	}
	r.Close()
	adopt = 3
	r, _ = d.guarded(t, g, &adopt)
	waitForHead(t, r, 4)
	if g.size() != 4 {
		t.Errorf("the guard is at %d, want 4", g.size())
	}
	lost := func() {
		t.Helper()
		g.set(func() { g.held = forkguard.Record{} })
		if _, err := r.Append(within(t, time.Minute), entryOf(4), d.sign(t, entryOf(4)), Tag(entryOf(4))); !errors.Is(err, ErrInconsistent) || g.size() != 0 {
			t.Errorf("append after the record was lost: %v, the guard is at %d; want ErrInconsistent and an empty guard", err, g.size())
		}
	}
	lost()
	r.Close()
	r, _ = d.guarded(t, g, &adopt)
	lost()
}
