package store_test

import (
	"context"
	"crypto/rand"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/store"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// bench is a migrated database with a store over it, and the store's tables as
// a test sees them.
type bench struct {
	*store.Store
	replica *store.Store // another process with the same database
	url     string
	sql     *pgx.Conn
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{url: servertest.Postgres(t)}
	if err := store.Migrate(t.Context(), b.url); err != nil {
		t.Fatal(err)
	}
	b.Store, b.replica = b.open(t), b.open(t)
	var err error
	if b.sql, err = pgx.Connect(t.Context(), b.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.sql.Close(context.Background()) })
	return b
}

func (b *bench) open(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), b.url, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// exec changes the tables behind the store's back.
func (b *bench) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := b.sql.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (b *bench) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := b.sql.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func random32() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return b
}

// declared is a split.v1 deal of two parties with an hour for each phase.
func (b *bench) declared(t *testing.T, change func(*store.Static)) *store.Static {
	t.Helper()
	now, err := b.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := &store.Static{
		DealID: "d_" + rand.Text(), OwnerHash: random32(), Algorithm: "split.v1", Params: []byte(`{"items":["car"]}`), Mode: "sealed", Retention: "standard",
		Labels: []string{"a", "b"}, CommitDeadline: now + 3600, RevealDeadline: now + 7200,
	}
	if change != nil {
		change(d)
	}
	if err := b.InsertKey(t.Context(), d.OwnerHash, nil); err != nil {
		t.Fatal(err)
	}
	return d
}

// created stores a deal.
func (b *bench) created(t *testing.T, change func(*store.Static)) *store.Static {
	t.Helper()
	d := b.declared(t, change)
	tokens := make([][]byte, len(d.Labels))
	for i := range tokens {
		tokens[i] = random32()
	}
	if _, ok, err := b.CreateDeal(t.Context(), d, tokens, nil); err != nil || !ok {
		t.Fatalf("create: %v, %v", ok, err)
	}
	return d
}

// commit commits the parties and advances the deal where those are all.
func (b *bench) commit(t *testing.T, d *store.Static, parties ...int) {
	t.Helper()
	for _, p := range parties {
		if ok, err := b.Commit(t.Context(), d.DealID, p, [32]byte(random32()), nil); err != nil || !ok {
			t.Fatalf("commit of party %d: %v, %v", p, ok, err)
		}
	}
	if err := b.Advance(t.Context(), d.DealID); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) reveal(t *testing.T, d *store.Static, parties ...int) {
	t.Helper()
	for _, p := range parties {
		if ok, err := b.Reveal(t.Context(), d.DealID, p, []byte{byte(p)}, nil); err != nil || !ok {
			t.Fatalf("reveal of party %d: %v, %v", p, ok, err)
		}
	}
}

func (b *bench) status(t *testing.T, dealID string) *store.Status {
	t.Helper()
	st, err := b.Status(t.Context(), dealID)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func ptr[T any](v T) *T { return &v }

// ending works an ending out of the deal as it stands.
func (b *bench) ending(t *testing.T, d *store.Static, to deal.State) *store.Ending {
	t.Helper()
	st := b.status(t, d.DealID)
	e := &store.Ending{DealID: d.DealID, From: st.Phase, To: to, Commits: st.Commits, Reveals: st.Reveals, At: st.Now}
	if to == deal.Void || to == deal.Computed {
		e.CertID, e.Payload, e.MAC = ptr("c_"+rand.Text()), []byte(`{"payload":1}`), random32()
	}
	if to == deal.Computed {
		e.ComputedAt, e.RevealsClosedAt, e.Result = &st.Now, &st.LastReveal, []byte(`{"shares":[]}`)
	}
	if to == deal.Void {
		e.VoidFlakers = []int{0}
	}
	return e
}
