package translog

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/database"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/signing"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

var quiet = slog.New(slog.NewJSONHandler(io.Discard, nil))

// deployment is a signing key with its key set, and a migrated database.
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

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[A any](_ A, err error) error        { return err }
func third[A, B any](_ A, _ B, err error) error { return err }

// sound checks that the replicas met no contradiction.
func sound(t *testing.T, replicas ...*Log) {
	t.Helper()
	for _, l := range replicas {
		if n := l.ProofFailures(); n != 0 {
			t.Errorf("%d contradictions are counted", n)
		}
	}
}

func newKey(t testing.TB) (*signing.Signer, *signing.KeySet) {
	t.Helper()
	signer, err := signing.Open(t.Context(), "dev://"+filepath.Join(t.TempDir(), "key.pem"))
	check(t, err)
	keys, err := signing.NewKeySet(signer.PublicKey(), nil)
	check(t, err)
	return signer, keys
}

func openPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := database.Open(t.Context(), url, 0)
	check(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// open starts a replica, with the deployment's own signer where it gets nil.
func (d *deployment) open(t testing.TB, pool *pgxpool.Pool, signer Signer) *Log {
	t.Helper()
	if signer == nil {
		signer = d.signer
	}
	l, err := Open(t.Context(), pool, signer, d.keys, quiet)
	check(t, err)
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

// data lists entries [first, end) as the leaves of a reference tree.
func data(first, end int) (list [][]byte) {
	for _, e := range entriesOf(first, end) {
		list = append(list, e[:])
	}
	return list
}

func candidatesOf(first, end int) (list []candidate) {
	for _, entry := range entriesOf(first, end) {
		list = append(list, candidate{entry, math.MaxInt64, Tag{}})
	}
	return list
}

func (d *deployment) sign(t testing.TB, entry [32]byte) string {
	t.Helper()
	signature, err := d.signer.Sign(t.Context(), entry)
	check(t, err)
	return signature
}

// mustAppend appends entry number n.
func (d *deployment) mustAppend(t testing.TB, l *Log, n int) Appended {
	t.Helper()
	appended, err := l.Append(within(t, time.Minute), entryOf(n), d.sign(t, entryOf(n)), Tag{})
	if err != nil {
		t.Fatalf("append entry %d: %v", n, err)
	}
	return appended
}

// fill sequences entries [first, end) in one batch and publishes them.
func fill(t testing.TB, l *Log, first, end int) {
	t.Helper()
	ctx := within(t, time.Minute)
	check(t, third(l.store.commit(ctx, candidatesOf(first, end))))
	check(t, second(l.publisher.wait(ctx, l.closed, int64(end-1))))
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until the condition holds; it fails the test after a minute.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// waitForHead waits for a published head of the size.
func waitForHead(t testing.TB, l *Log, size int64) TreeHead {
	t.Helper()
	var head TreeHead
	eventually(t, "a head is published", func() bool {
		var err error
		head, err = l.TreeHeadAt(t.Context(), size)
		return err == nil
	})
	return head
}
