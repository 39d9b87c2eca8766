package translog

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/database"
)

// The outcome of a commit is unknown: the connection ends around it. Whatever
// the outcome was, the retry gives one leaf an entry.
func TestUnknownCommitOutcome(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*testing.T, *deployment, net.Conn, []byte){
		"the commit is lost on its way": func(_ *testing.T, _ *deployment, wire net.Conn, _ []byte) {
			wire.Close()
		},
		"the backend is terminated before the commit": func(t *testing.T, d *deployment, wire net.Conn, message []byte) {
			if _, err := d.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
				t.Error(err)
			}
			_, _ = wire.Write(message)
		},
		"the answer to the commit is lost": func(t *testing.T, d *deployment, wire net.Conn, message []byte) {
			if _, err := wire.Write(message); err != nil {
				t.Error(err)
			}
			_, _ = wire.Read(make([]byte, 1024)) // the server has committed
			wire.Close()
		},
	}
	// What the message that commits entry 1 holds: the first append of a process
	// is under the lock, the next is one statement.
	second := entryOf(1)
	for way, commits := range map[string][]byte{"under the lock": []byte("commit\x00"), "in one statement": second[:]} {
		for name, cut := range cases {
			t.Run(way+"/"+name, func(t *testing.T) {
				d := newDeployment(t)
				var armed atomic.Bool
				l := d.open(t, wiredPool(t, d.url, func(wire net.Conn, message []byte) bool {
					if !bytes.Contains(message, commits) || !armed.CompareAndSwap(true, false) {
						return false
					}
					cut(t, d, wire, message)
					return true
				}), nil)
				before := l
				if way == "under the lock" {
					before = d.open(t, openPool(t, d.url), nil)
				}
				first := d.mustAppend(t, before, 0)
				armed.Store(true)
				second := d.mustAppend(t, l, 1)
				if armed.Load() {
					t.Fatal("no commit was cut")
				}
				again := d.mustAppend(t, l, 1)
				if first.LeafIndex != 0 || second.LeafIndex != 1 || again.LeafIndex != 1 || committedSize(t, d) != 2 {
					t.Errorf("indexes %d, %d, %d, size %d", first.LeafIndex, second.LeafIndex, again.LeafIndex, committedSize(t, d))
				}
				checkHeadAndPaths(t, l, data(0, 2), []int{0, 1})
			})
		}
	}
}

// wiredPool is a pool whose writes pass through cut, which reports whether it
// took the message.
func wiredPool(t *testing.T, url string, cut func(net.Conn, []byte) bool) *pgxpool.Pool {
	t.Helper()
	config, err := database.Config(url)
	check(t, err)
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &wire{conn, cut}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	check(t, err)
	t.Cleanup(pool.Close)
	return pool
}

type wire struct {
	net.Conn
	cut func(net.Conn, []byte) bool
}

func (w *wire) Write(message []byte) (int, error) {
	if w.cut(w.Conn, message) {
		return len(message), nil
	}
	return w.Conn.Write(message)
}

type failingSigner struct {
	Signer
	down atomic.Bool
	err  error // nil: a refusal
}

func (f *failingSigner) Sign(ctx context.Context, digest [32]byte) (string, error) {
	if f.down.Load() && f.err != nil {
		return "", f.err
	}
	if f.down.Load() {
		return "", errors.New("the key is disabled")
	}
	return f.Signer.Sign(ctx, digest)
}

// A signature that does not verify under the key set is not stored.
func TestForeignSigner(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	stranger, _ := newKey(t)
	l := d.open(t, d.pool, stranger)
	_, err := l.Append(within(t, 500*time.Millisecond), entryOf(0), d.sign(t, entryOf(0)), Tag{})
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	var heads int
	if err := d.pool.QueryRow(t.Context(), "SELECT count(*) FROM translog.tree_heads").Scan(&heads); err != nil || heads != 0 {
		t.Errorf("%d heads are stored (%v)", heads, err)
	}
	if err := l.Ready(t.Context()); err == nil {
		t.Error("ready without a head")
	}
}

// What a replica sequenced and did not publish before it died is published by
// the next one at its start.
func TestUnpublishedAtStart(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	check(t, third((&store{d.pool}).commit(t.Context(), candidatesOf(0, 300))))
	l := d.open(t, d.pool, nil)
	waitForHead(t, l, 0)
	waitForHead(t, l, 300)
	checkHeadAndPaths(t, l, data(0, 300), []int{0, 255, 256, 299})
}

// Two publishers sign one size: the first stored head stands, for both.
func TestTwoPublishersOneSize(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	gates := [2]*gatedSigner{}
	replicas := [2]*Log{}
	for i := range replicas {
		gates[i] = &gatedSigner{Signer: d.signer, entered: make(chan struct{}, 100), pass: make(chan struct{}, 100)}
		replicas[i] = d.open(t, openPool(t, d.url), gates[i])
	}
	for _, g := range gates {
		<-g.entered // both sign size 0
	}
	var group sync.WaitGroup
	signature := d.sign(t, entryOf(0))
	for _, l := range replicas {
		group.Go(func() {
			if _, err := l.Append(within(t, time.Minute), entryOf(0), signature, Tag{}); err != nil {
				t.Error(err)
			}
		})
	}
	for _, g := range gates {
		g.pass <- struct{}{}
	}
	for _, g := range gates {
		<-g.entered // both sign size 1: neither has stored it
	}
	for _, g := range gates {
		g.pass <- struct{}{}
	}
	group.Wait()
	for _, size := range []int64{0, 1} {
		a, b := waitForHead(t, replicas[0], size), waitForHead(t, replicas[1], size)
		if a != b {
			t.Errorf("two heads of size %d: %+v and %+v", size, a, b)
		}
	}
}

// A database that goes away and comes back: errors meanwhile, nothing lost.
func TestDatabaseGoesAway(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	var down atomic.Bool
	l := d.open(t, wiredPool(t, d.url, func(conn net.Conn, _ []byte) bool {
		if down.Load() {
			conn.Close()
		}
		return false
	}), nil)
	d.mustAppend(t, l, 0)
	down.Store(true)
	if _, err := l.Append(within(t, time.Minute), entryOf(1), d.sign(t, entryOf(1)), Tag{}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("append: %v, want ErrUnavailable", err)
	}
	if _, err := l.TreeHead(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("tree head: %v, want ErrUnavailable", err)
	}
	if err := l.Ready(t.Context()); err == nil {
		t.Error("ready without a database")
	}
	down.Store(false)
	if again := d.mustAppend(t, l, 1); again.LeafIndex != 1 {
		t.Errorf("index %d, want 1", again.LeafIndex)
	}
	sound(t, l)
}
