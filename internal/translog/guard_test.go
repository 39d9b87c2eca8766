package translog

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	dto "github.com/prometheus/client_model/go"

	"github.com/fairpact/fairpact/internal/forkguard"
)

// memoryGuard is a guard in memory. The hooks, where set, may fail a call.
type memoryGuard struct {
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

// once does f at the first call alone.
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

// guarded starts a replica behind the guard; its signer counts.
func (d *deployment) guarded(t *testing.T, g Guard, more ...Option) (*Log, *gatedSigner) {
	t.Helper()
	gate := &gatedSigner{Signer: d.signer, entered: make(chan struct{}, 1000), pass: make(chan struct{})}
	close(gate.pass)
	l, err := Open(t.Context(), openPool(t, d.url), gate, d.keys, quiet, append([]Option{WithGuard(g, nil)}, more...)...)
	check(t, err)
	t.Cleanup(l.Close)
	return l, gate
}

// toldTo starts a replica behind the guard that logs to the text, which is read
// after the replica is closed.
func (d *deployment) toldTo(t *testing.T, told *strings.Builder, g Guard) *Log {
	t.Helper()
	l, err := Open(t.Context(), openPool(t, d.url), d.signer, d.keys, slog.New(slog.NewTextHandler(told, nil)), WithGuard(g, nil))
	check(t, err)
	t.Cleanup(l.Close)
	return l
}

// A Store that fails, persisted or not, holds the head up and loses nothing; the
// guard is at each head that is published.
func TestGuardFaults(t *testing.T) {
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
			l, _ := d.guarded(t, g)
			d.mustAppend(t, l, 0)
			g.set(func() { arm(g) })
			got, head := d.mustAppend(t, l, 1), waitForHead(t, l, 2)
			g.set(func() {
				if got.LeafIndex != 1 || g.held.Size != 2 || g.held.Root != head.RootHash {
					t.Errorf("%+v, %+v, guard at %+v", got, head, g.held)
				}
			})
			sound(t, l)
		})
	}
}

func TestGuardDownAndBack(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	g := &memoryGuard{}
	l, gate := d.guarded(t, g)
	d.mustAppend(t, l, 0)
	g.set(func() { g.load = func() error { return errors.New("the guard is down") } })
	signed := gate.count.Load()
	if _, err := l.Append(within(t, 500*time.Millisecond), entryOf(1), d.sign(t, entryOf(1)), Tag{}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if gate.count.Load() != signed {
		t.Error("signed without the guard")
	}
	if err := prove(t, l, 0); err != nil {
		t.Errorf("reading goes on: %v", err)
	}
	g.set(func() { g.load = nil })
	if got := d.mustAppend(t, l, 1); got.LeafIndex != 1 {
		t.Errorf("%+v", got)
	}
	sound(t, l)
}

// A guard that is moved whenever it is to be moved is a failure, which is told,
// counted and retried at leisure: who waits learns why.
func TestGuardThatIsAlwaysMoved(t *testing.T) {
	d := newDeployment(t)
	var told strings.Builder
	g := &memoryGuard{}
	l := d.toldTo(t, &told, g)
	d.mustAppend(t, l, 0)

	before, failed, began := 0, failuresCounted(t), time.Now()
	g.set(func() { before, g.before = g.tried, func() error { return forkguard.ErrMoved } })
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	defer leave()
	answered, signature := make(chan error, 1), d.sign(t, entryOf(1))
	go func() { answered <- second(l.Append(ctx, entryOf(1), signature, Tag{})) }()
	eventually(t, "it fails five times", func() bool { return failuresCounted(t) >= failed+5 })
	g.set(func() {
		took := time.Since(began)
		if tried, most := g.tried-before, guardAttempts*(lostRaces+2+int(took/publishBackoff)); tried > most {
			t.Errorf("the guard was to be moved %d times in %s, want no more than %d", tried, took, most)
		}
	})
	leave()
	if err := <-answered; !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "written by somebody else") {
		t.Errorf("the append was answered %v", err)
	}
	g.set(func() { g.before = nil })
	if got := d.mustAppend(t, l, 1); got.LeafIndex != 1 {
		t.Errorf("%+v", got)
	}
	sound(t, l)
	l.Close()
	if !strings.Contains(told.String(), "no head was published") || !strings.Contains(told.String(), "written by somebody else") {
		t.Errorf("the log:\n%s", told.String())
	}
}

// Publishers that race for the guard are no contradiction.
func TestGuardedPublishersRace(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	g := &memoryGuard{}
	a, _ := d.guarded(t, g)
	b, _ := d.guarded(t, g)
	const each = 40
	var all sync.WaitGroup
	for n := range 2 * each {
		signature, l := d.sign(t, entryOf(n)), []*Log{a, b}[n%2]
		all.Go(func() {
			if _, err := l.Append(within(t, time.Minute), entryOf(n), signature, Tag{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	eventually(t, "the guard is at the last head", func() bool { return g.size() == 2*each })
	sound(t, a, b)
}

func failuresCounted(t *testing.T) float64 {
	t.Helper()
	var read dto.Metric
	check(t, publishFailures.Write(&read))
	return read.GetCounter().GetValue()
}

// Who finds that another replica's head covers more than its own is no failure:
// it reads the database again at once, warns of nothing and waits for nothing.
func TestALostRaceIsNoFailure(t *testing.T) {
	d := newDeployment(t)
	var told strings.Builder
	g := &memoryGuard{}
	other, _ := d.guarded(t, g)
	l := d.toldTo(t, &told, g)
	d.mustAppend(t, l, 0)
	before, signature := failuresCounted(t), d.sign(t, entryOf(2))
	g.set(func() {
		g.load = once(func() error { return second(other.Append(within(t, time.Minute), entryOf(2), signature, Tag{})) })
	})
	d.mustAppend(t, l, 1)
	l.Close()
	if g.size() != 3 {
		t.Errorf("nobody was overtaken: the guard is at %d", g.size())
	}
	if n := failuresCounted(t) - before; n != 0 || strings.Contains(told.String(), "level=WARN") {
		t.Errorf("%v failures; the log:\n%s", n, told.String())
	}
}

// A crash between the guard and the signature is signed after the restart.
func TestGuardAheadOfSignature(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.sequence(t, 0, 5)
	g := &memoryGuard{held: forkguard.Record{Size: 5, Root: root{5, refRoot(data(0, 5))}.head("").RootHash}}
	firstHead(t, d)
	l, _ := d.guarded(t, g)
	waitForHead(t, l, 5)
}

// sequence commits entries [first, end) and publishes none of them: the signer is
// down.
func (d *deployment) sequence(t *testing.T, first, end int) {
	t.Helper()
	signer := &failingSigner{Signer: d.signer}
	signer.down.Store(true)
	l := d.open(t, openPool(t, d.url), signer)
	defer l.Close()
	for n := first; n < end; n++ {
		before := committedSize(t, d)
		ctx, leave := context.WithCancel(t.Context())
		signature := d.sign(t, entryOf(n))
		go func() { _, _ = l.Append(ctx, entryOf(n), signature, Tag{}) }()
		eventually(t, "the entry is sequenced", func() bool { return committedSize(t, d) > before })
		leave()
	}
}

// firstHead publishes the head of size 0, as the first start of a log does.
func firstHead(t *testing.T, d *deployment) {
	t.Helper()
	head := emptyRoot.head("")
	digest := head.Digest()
	head.Signature = d.sign(t, digest)
	check(t, second((&store{d.pool}).insertHead(t.Context(), head, nil)))
}

// copyOf is a backup of the deployment's database, restored beside it.
func (d *deployment) copyOf(t *testing.T) *deployment {
	t.Helper()
	d.pool.Close()
	at, err := url.Parse(d.url)
	check(t, err)
	name := strings.TrimPrefix(at.Path, "/")
	admin, restored := *at, *at
	admin.Path, restored.Path = "/postgres", "/"+name+"_restored"
	conn, err := pgx.Connect(t.Context(), admin.String())
	check(t, err)
	defer conn.Close(t.Context())
	eventually(t, "the database is copied", func() bool { // once its connections have ended
		_, err = conn.Exec(t.Context(), "CREATE DATABASE "+pgx.Identifier{name + "_restored"}.Sanitize()+" TEMPLATE "+pgx.Identifier{name}.Sanitize())
		return err == nil
	})
	d.pool = openPool(t, d.url)
	return &deployment{url: restored.String(), pool: openPool(t, restored.String()), signer: d.signer, keys: d.keys}
}

// lastFailure is why the publisher's last round failed.
func (l *Log) lastFailure() error {
	l.publisher.mu.Lock()
	defer l.publisher.mu.Unlock()
	return l.publisher.lastErr
}

// A database restored from a backup is refused at the start, and when it has
// grown past the signed size by other leaves; the newest one goes on.
func TestRestoredBackupIsRefused(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	g := &memoryGuard{}
	l, _ := d.guarded(t, g)
	fill(t, l, 0, 3)
	l.Close()
	l.store.pool.Close()
	old := d.copyOf(t)
	l, _ = d.guarded(t, g)
	fill(t, l, 3, 5)

	refusedBy := func(name string) {
		t.Helper()
		r, gate := old.guarded(t, g)
		eventually(t, name+" is refused", func() bool { return errors.Is(r.lastFailure(), errGuarded) })
		if _, err := r.Append(within(t, time.Minute), entryOf(100), d.sign(t, entryOf(100)), Tag{}); !errors.Is(err, ErrInconsistent) {
			t.Errorf("%s: %v, want ErrInconsistent", name, err)
		}
		if n := gate.count.Load(); n != 0 {
			t.Errorf("%s: %d heads were signed", name, n)
		}
		sound(t, r) // no proof was wrong
		r.Close()
	}
	refusedBy("older")
	old.sequence(t, 101, 102)
	refusedBy("of the same size")
	old.sequence(t, 102, 104)
	refusedBy("bigger")
	if got := d.mustAppend(t, l, 5); got.LeafIndex != 5 {
		t.Errorf("the newest database: %+v", got)
	}
}

// The database is swapped for an older copy under a running replica: the index
// that the copy gives out again is not answered as published.
func TestFailoverUnderARunningReplica(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l, gate := d.guarded(t, &memoryGuard{})
	fill(t, l, 0, 3)
	d.mustAppend(t, l, 3)
	d.mustAppend(t, l, 4)
	signed := gate.count.Load()
	asOwner(t, d, "DELETE FROM translog.leaves WHERE leaf_index >= 3", "DELETE FROM translog.tree_heads WHERE tree_size > 3")
	setCommitted(t, d, data(0, 3))
	four := int64(4)
	if got, err := l.Inclusion(t.Context(), LeafQuery{LeafIndex: &four}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a leaf that is in memory alone: %+v, %v; want ErrNotFound", got, err)
	}
	if got, err := l.Append(within(t, time.Minute), entryOf(100), d.sign(t, entryOf(100)), Tag{}); !errors.Is(err, ErrInconsistent) {
		t.Errorf("%+v, %v; want ErrInconsistent", got, err)
	}
	if n := gate.count.Load(); n != signed {
		t.Errorf("%d heads were signed", n-signed)
	}
	sound(t, l)
	if why := l.lastFailure(); !errors.Is(why, errGuarded) {
		t.Errorf("the refusal is %v", why)
	}
}

// A guard that lost its record, or is new to a log, takes nothing by itself.
func TestGuardWithoutRecord(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, openPool(t, d.url), nil)
	fill(t, l, 0, 3)
	l.Close()
	g := &memoryGuard{}
	r, gate := d.guarded(t, g)
	_, err := r.Append(within(t, time.Minute), entryOf(3), d.sign(t, entryOf(3)), Tag{})
	if !errors.Is(err, ErrInconsistent) || !strings.Contains(err.Error(), "FAIRPACT_FORK_GUARD_INIT") || gate.count.Load() != 0 || g.stores != 0 {
		t.Errorf("%v, %d signed", err, gate.count.Load())
	}
	r.Close()

	// A person's word is for one size, the newest published one, and left on by
	// mistake it is worth nothing when the record is lost again.
	var word int64 = 4
	adopting := func(l *Log) { WithGuard(g, &word)(l) }
	r, gate = d.guarded(t, g, adopting)
	if _, err := r.Append(within(t, time.Minute), entryOf(3), d.sign(t, entryOf(3)), Tag{}); !errors.Is(err, ErrInconsistent) || gate.count.Load() != 0 {
		t.Errorf("a word for size 4, and 3 is published: %v", err)
	}
	r.Close()
	word = 3
	r, _ = d.guarded(t, g, adopting)
	waitForHead(t, r, 4)
	if g.size() != 4 {
		t.Errorf("the guard is at %d, want 4", g.size())
	}
	lost := func() {
		t.Helper()
		g.set(func() { g.held = forkguard.Record{} })
		if _, err := r.Append(within(t, time.Minute), entryOf(4), d.sign(t, entryOf(4)), Tag{}); !errors.Is(err, ErrInconsistent) || g.size() != 0 {
			t.Errorf("%v; the guard is at %d", err, g.size())
		}
	}
	lost()
	r.Close()
	r, _ = d.guarded(t, g, adopting)
	lost()
}
