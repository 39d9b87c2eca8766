package translog

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

var quiet = slog.New(slog.NewJSONHandler(io.Discard, nil))

type deployment struct {
	url    string
	pool   *pgxpool.Pool
	signer *signing.Signer
	keys   *signing.KeySet
}

func newDeployment(t testing.TB) *deployment {
	t.Helper()
	d := &deployment{url: servertest.Postgres(t)}
	check(t, Migrate(t.Context(), d.url))
	d.pool = openPool(t, d.url)
	d.signer, d.keys = newKey(t)
	return d
}

func newLog(t testing.TB) (*deployment, *Log) {
	t.Helper()
	d := newDeployment(t)
	return d, d.open(t, d.pool, nil)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type result[T any] struct {
	value T
	err   error
}

func of[T any](value T, err error) result[T] { return result[T]{value, err} }

func (r result[T]) ok(t testing.TB) T {
	t.Helper()
	check(t, r.err)
	return r.value
}

func second[A any](_ A, err error) error        { return err }
func third[A, B any](_ A, _ B, err error) error { return err }

func requireNoContradiction(t *testing.T, replicas ...*Log) {
	t.Helper()
	for _, l := range replicas {
		if n := l.ProofFailures(); n != 0 {
			t.Errorf("%d contradictions are counted, want 0", n)
		}
	}
}

func newKey(t testing.TB) (*signing.Signer, *signing.KeySet) {
	t.Helper()
	signer := of(signing.Open(t.Context(), "dev://"+filepath.Join(t.TempDir(), "key.pem"))).ok(t)
	set := signing.NewKeySet(of(keys.OneSigner(signer.PublicKey(), "dev://key", nil, keys.Margin)).ok(t))
	return signer, set
}

func openPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool := of(database.Open(t.Context(), url, 0)).ok(t)
	t.Cleanup(pool.Close)
	return pool
}

func (d *deployment) open(t testing.TB, pool *pgxpool.Pool, signer Signer) *Log {
	t.Helper()
	return d.openWith(t, pool, signer, quiet, Options{})
}

func (d *deployment) openWith(t testing.TB, pool *pgxpool.Pool, signer Signer, logger *slog.Logger, o Options) *Log {
	t.Helper()
	if signer == nil {
		signer = d.signer
	}
	l := of(Open(t.Context(), pool, signer, d.keys, logger, o)).ok(t)
	t.Cleanup(l.Close)
	return l
}

func entryOf(n int) [32]byte {
	return sha256.Sum256(binary.BigEndian.AppendUint64([]byte("entry"), uint64(n)))
}

func entriesOf(first, end int) (entries [][32]byte) {
	for n := first; n < end; n++ {
		entries = append(entries, entryOf(n))
	}
	return entries
}

func leavesOf(first, end int) (list [][]byte) {
	for _, e := range entriesOf(first, end) {
		list = append(list, e[:])
	}
	return list
}

func candidatesOf(first, end int) (list []candidate) {
	for _, entry := range entriesOf(first, end) {
		list = append(list, candidate{entry, math.MaxInt64, Tag(entry)})
	}
	return list
}

func (d *deployment) sign(t testing.TB, entry [32]byte) string {
	t.Helper()
	signature := of(d.signer.Sign(t.Context(), entry)).ok(t)
	return signature
}

func (d *deployment) mustAppend(t testing.TB, l *Log, numbers ...int) (last Appended) {
	t.Helper()
	for _, n := range numbers {
		var err error
		if last, err = l.Append(within(t, time.Minute), entryOf(n), d.sign(t, entryOf(n)), Tag(entryOf(n))); err != nil {
			t.Fatalf("append entry %d: %v, want no error", n, err)
		}
	}
	return last
}

func (d *deployment) failAppend(t testing.TB, l *Log, n int, want error) {
	t.Helper()
	if at, err := l.Append(within(t, time.Minute), entryOf(n), d.sign(t, entryOf(n)), Tag(entryOf(n))); !errors.Is(err, want) {
		t.Errorf("append entry %d: %+v, %v; want %v", n, at, err, want)
	}
}

// fill commits like the sequencer: in its batches, again if the server has ended the session of a
// process that did not run for too long.
func fill(t testing.TB, l *Log, first, end int) {
	t.Helper()
	ctx := within(t, 5*time.Minute)
	for batch := range slices.Chunk(candidatesOf(first, end), maxBatch) {
		_, _, err := l.store.commit(ctx, batch)
		for ; errors.Is(err, ErrUnavailable) && ctx.Err() == nil; _, _, err = l.store.commit(ctx, batch) {
		}
		check(t, err)
	}
	check(t, second(l.publisher.wait(ctx, l.closed, int64(end-1))))
}

func verify(in Inclusion, entry [32]byte) error {
	proof := certificate.LogProof{TreeSize: in.TreeSize, LeafIndex: in.LeafIndex, InclusionPath: in.Path}
	return certificate.VerifyInclusion(entry, proof, in.RootHash)
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func waitForHead(t testing.TB, l *Log, size int64) TreeHead {
	t.Helper()
	var head TreeHead
	eventually(t, fmt.Sprint("a head of size ", size), func() bool {
		var err error
		head, err = l.TreeHeadAt(t.Context(), size)
		return err == nil
	})
	return head
}
