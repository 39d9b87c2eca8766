package translog

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/platform/database"
)

// The connection to Postgres ends during a commit, so the sequencer does not know whether the
// commit took effect.
func TestUnknownCommitOutcomeLeavesOneLeaf(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*testing.T, *deployment, net.Conn, []byte){
		"the commit is lost on its way": func(_ *testing.T, _ *deployment, wire net.Conn, _ []byte) {
			wire.Close()
		},
		"the backend is terminated before the commit": func(t *testing.T, d *deployment, wire net.Conn, message []byte) {
			if _, err := d.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
				t.Errorf("terminate the backend: %v, want no error", err)
			}
			_, _ = wire.Write(message)
		},
		"the answer to the commit is lost": func(t *testing.T, d *deployment, wire net.Conn, message []byte) {
			if _, err := wire.Write(message); err != nil {
				t.Errorf("pass the commit on: %v, want no error", err)
			}
			_, _ = wire.Read(make([]byte, 1024)) // wait for the answer, so that the server has committed
			wire.Close()
		},
	}
	// A process's first append runs under the lock and ends with COMMIT. Its later appends run in
	// one statement, which contains the entry. So after entry 0, the first message to Postgres that
	// contains `commits` commits entry 1. The case's function `cut` gets this message.
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
					t.Errorf("indexes %d, %d, %d and size %d, want 0, 1, 1 and 2", first.LeafIndex, second.LeafIndex, again.LeafIndex, committedSize(t, d))
				}
				checkHeadAndPaths(t, l, leavesOf(0, 2), []int{0, 1})
			})
		}
	}
}

func wiredPool(t *testing.T, url string, cut func(net.Conn, []byte) bool) *pgxpool.Pool {
	t.Helper()
	config := of(database.Config(url)).ok(t)
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &wire{conn, cut}, err
	}
	pool := of(pgxpool.NewWithConfig(t.Context(), config)).ok(t)
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
	err  error
}

func (f *failingSigner) Sign(ctx context.Context, digest [32]byte) (string, error) {
	if f.down.Load() {
		return "", f.err
	}
	return f.Signer.Sign(ctx, digest)
}

func TestReady(t *testing.T) {
	t.Parallel()
	if _, err := Open(t.Context(), openPool(t, servertest.Postgres(t)), nil, nil, quiet, Options{}); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("open without a schema: %v, want a hint at fairpactctl migrate", err)
	}
	d := newDeployment(t)
	signer := &failingSigner{Signer: d.signer, err: errors.New("down")}
	signer.down.Store(true)
	l := d.open(t, d.pool, signer)
	if err := l.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "no head is published") {
		t.Errorf("Ready before the first head: %v, want an error that no head is published", err)
	}
	signer.down.Store(false)
	waitForHead(t, l, 0)
	check(t, l.Ready(t.Context()))
	asOwner(t, d, "UPDATE translog.goose_db_version SET version_id = 0")
	if err := l.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("Ready on an older schema: %v, want a hint at fairpactctl migrate", err)
	}
	d.pool.Close()
	if err := l.Ready(t.Context()); err == nil {
		t.Error("Ready without a database: no error, want one")
	}
}
