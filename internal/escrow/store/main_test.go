package store_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

type fixture struct {
	*store.Store
	replica *store.Store
	url     string
	sql     *pgx.Conn
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	f := &fixture{url: servertest.Postgres(t)}
	check(t, store.Migrate(t.Context(), f.url))
	f.Store, f.replica, f.sql = open(t, f.url), open(t, f.url), f.connect(t)
	return f
}

func open(t *testing.T, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, 16)
	check(t, err)
	t.Cleanup(s.Close)
	return s
}

func (f *fixture) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), f.url)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func checkAll(t *testing.T, errs []error) {
	t.Helper()
	check(t, errors.Join(errs...))
}

func (f *fixture) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := f.sql.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("statement %s: %v", statement, err)
	}
}

func (f *fixture) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := f.sql.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("query %s: %v", query, err)
	}
	return n
}

func (f *fixture) now(t *testing.T) int64 {
	t.Helper()
	now, err := f.Now(t.Context())
	check(t, err)
	return now
}

func random32() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return b
}

func ptr[T any](v T) *T { return &v }

func second[A any](_ A, err error) error        { return err }
func third[A, B any](_ A, _ B, err error) error { return err }

func (f *fixture) declare(t *testing.T, change func(*store.Declaration)) store.NewDeal {
	t.Helper()
	d := newDeal(f.now(t), change)
	check(t, f.InsertKey(t.Context(), d.OwnerHash, nil))
	return d
}

func newDeal(now int64, change func(*store.Declaration)) store.NewDeal {
	d := store.NewDeal{Declaration: &store.Declaration{
		DealID: "d_" + rand.Text(), OwnerHash: random32(), Terms: deal.Terms{
			Algorithm: "split.v1", Params: []byte(`{"items":["car"]}`), Mode: "sealed", Retention: "standard",
			Labels: []string{"a", "b"}, CommitDeadline: now + 3600, RevealDeadline: now + 7200,
		},
	}}
	if change != nil {
		change(d.Declaration)
	}
	for range d.Labels {
		d.TokenHashes = append(d.TokenHashes, random32())
	}
	return d
}

func (f *fixture) create(t *testing.T, change func(*store.Declaration)) *store.Declaration {
	t.Helper()
	d := f.declare(t, change)
	if created, err := f.CreateDeal(t.Context(), d); err != nil || !created.OK {
		t.Fatalf("CreateDeal = %+v, %v; want OK", created, err)
	}
	return d.Declaration
}

func parties(n int) func(*store.Declaration) {
	return func(d *store.Declaration) {
		d.Labels = make([]string, n)
		for i := range d.Labels {
			d.Labels[i] = fmt.Sprint(i)
		}
	}
}

func random(d *store.Declaration) {
	d.Algorithm, d.ChainHash, d.BeaconRound, d.RoundTime = "random.v1", ptr("00"), ptr(int64(1)), ptr(d.RevealDeadline+60)
}

func act(d *store.Declaration, party int) store.Act {
	return store.Act{DealID: d.DealID, Party: party, Commitment: sha256.Sum256(fmt.Appendf(nil, "%s %d", d.DealID, party)), Sealed: []byte{byte(party)}}
}

func wrong(a store.Act) store.Act {
	a.Commitment[0]++
	return a
}

func (f *fixture) commit(t *testing.T, d *store.Declaration, parties ...int) {
	t.Helper()
	for _, p := range parties {
		if done, err := f.Commit(t.Context(), act(d, p)); err != nil || !done.Done {
			t.Fatalf("commit of party %d: got %+v, %v; want Done", p, done, err)
		}
	}
}

func (f *fixture) reveal(t *testing.T, d *store.Declaration, parties ...int) {
	t.Helper()
	for _, p := range parties {
		if done, err := f.Reveal(t.Context(), act(d, p)); err != nil || !done.Done {
			t.Fatalf("reveal of party %d: got %+v, %v; want Done", p, done, err)
		}
	}
}

func (f *fixture) snapshot(t *testing.T, d *store.Declaration, selection store.Selection) *store.Snapshot {
	t.Helper()
	s, err := f.Snapshot(t.Context(), d.DealID, selection)
	check(t, err)
	return s
}

func (f *fixture) current(t *testing.T, d *store.Declaration) *store.Snapshot {
	t.Helper()
	return f.snapshot(t, d, store.NoParties)
}

func (f *fixture) ending(t *testing.T, d *store.Declaration, to deal.State) *store.Ending {
	t.Helper()
	now := f.snapshot(t, d, store.AllParties(len(d.Labels)))
	e := &store.Ending{DealID: d.DealID, Parties: len(d.Labels), From: now.Phase, To: to, Commits: now.Commits, Reveals: now.Reveals, At: now.Now}
	if to == deal.Void || to == deal.Computed {
		e.CertID, e.Payload, e.MAC = ptr("c_"+rand.Text()), []byte(`{"payload":1}`), random32()
	}
	if to == deal.Computed {
		e.ComputedAt, e.RevealsClosedAt, e.Result = &now.Now, &now.LastReveal, []byte(`{"shares":[]}`)
	}
	if to == deal.Void {
		e.VoidFlakers = []int{}
		for i, p := range now.Parts {
			if p.Commitment == nil || now.Phase == deal.Revealing && !p.Revealed {
				e.VoidFlakers = append(e.VoidFlakers, i)
			}
		}
	}
	return e
}

func (f *fixture) end(t *testing.T, d *store.Declaration, to deal.State) *store.Ending {
	t.Helper()
	e := f.ending(t, d, to)
	if done, err := f.End(t.Context(), e); err != nil || !done {
		t.Fatalf("End = %v, %v; want true", done, err)
	}
	return e
}
