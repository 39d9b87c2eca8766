package store_test

import (
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

const day = 24 * time.Hour

// ended returns a deal that was computed `days` ago.
func (f *fixture) endedAgo(t *testing.T, days int, change func(*store.Declaration)) *store.Declaration {
	t.Helper()
	d := f.create(t, change)
	all := make([]int, len(d.Labels))
	for i := range all {
		all[i] = i
	}
	f.commit(t, d, all...)
	f.reveal(t, d, all...)
	f.end(t, d, deal.Computed)
	at := f.now(t) - int64(days)*86_400
	f.exec(t, "UPDATE deals SET commit_deadline = $2, reveal_deadline = $3, computed_at = $3, ended_at = $3 WHERE deal_id = $1", d.DealID, at-60, at)
	f.exec(t, "UPDATE certificates SET leaf_index = (SELECT count(leaf_index) FROM certificates) WHERE deal_id = $1", d.DealID)
	return d
}

func (f *fixture) stored(t *testing.T, d *store.Declaration) (params, inputs int) {
	t.Helper()
	return f.count(t, "SELECT octet_length(params) FROM deals WHERE deal_id = $1", d.DealID),
		f.count(t, "SELECT count(*) FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL", d.DealID)
}

func TestContentsOfOldEndedDealsAreDeleted(t *testing.T) {
	f := newFixture(t)
	titled := func(d *store.Declaration) { d.Title, d.Message = "title", "message" }
	old, recent := f.endedAgo(t, 11, titled), f.endedAgo(t, 9, titled)
	late := f.endedAgo(t, 11, nil) // computed long after its deadline
	f.exec(t, "UPDATE deals SET computed_at = $2 WHERE deal_id = $1", late.DealID, f.now(t))
	pending := f.endedAgo(t, 11, nil)
	f.exec(t, "UPDATE certificates SET leaf_index = NULL WHERE deal_id = $1", pending.DealID)
	expired := f.create(t, nil) // ended long after its deadline, without a certificate
	f.commit(t, expired, 0, 1)
	f.reveal(t, expired, 0, 1)
	f.end(t, expired, deal.Expired)
	f.deadlines(t, expired, -12*86_400, -11*86_400)
	active := f.create(t, nil)
	f.deadlines(t, active, -12*86_400, -11*86_400)
	f.exec(t, `INSERT INTO seals (deal_id, party, hash, sealed, secret, sealed_at, round_time, state) VALUES ($1, 0, sha256(''), 'x', 'x', 1, 1, 'failed')`, old.DealID)
	for i, want := range []int64{1, 0} {
		if n, err := f.DeleteContents(t.Context(), 10*day); err != nil || n != want {
			t.Errorf("sweep %d: %d deals, %v; want %d", i, n, err, want)
		}
	}
	if n := f.count(t, "SELECT count(*) FROM seals WHERE sealed IS NOT NULL OR secret IS NOT NULL"); n != 0 {
		t.Errorf("%d seals are stored, want 0", n)
	}
	for _, kept := range []struct {
		name   string
		deal   *store.Declaration
		params int
		inputs int
	}{{"old", old, 0, 0}, {"recent", recent, 17, 2}, {"computed late", late, 17, 2}, {"pending", pending, 17, 2}, {"expired late", expired, 17, 2}, {"active", active, 17, 0}} {
		if params, inputs := f.stored(t, kept.deal); params != kept.params || inputs != kept.inputs {
			t.Errorf("%s: %d bytes of params and %d inputs are stored, want %d and %d", kept.name, params, inputs, kept.params, kept.inputs)
		}
	}
	declared, err := f.Declaration(t.Context(), old.DealID)
	if err != nil || declared.Params == nil || len(declared.Params) != 0 || len(declared.Labels) != 2 || declared.TextBytes() != 0 {
		t.Errorf("the declaration is %+v, %v; want labels, empty params and no texts", declared, err)
	}
	if declared, err := f.Declaration(t.Context(), recent.DealID); err != nil || declared.Title != "title" || declared.Message != "message" {
		t.Errorf("the declaration of a recent deal is %+v, %v; want its texts", declared, err)
	}
}

// A statement takes few parties, so that it stays below the statement timeout, and does not wait for
// another worker.
func TestContentsAreDeletedInBatches(t *testing.T) {
	f := newFixture(t)
	for range 3 {
		d := f.endedAgo(t, 11, nil)
		f.exec(t, "UPDATE deals SET parties = 6000 WHERE deal_id = $1", d.DealID)
	}
	tx, err := f.sql.Begin(t.Context())
	check(t, err)
	for i, batch := range []struct {
		sweep func() (int64, error)
		want  int64
	}{
		{func() (int64, error) {
			tag, err := tx.Exec(t.Context(), statement(t, "delete_contents"), int64(10*day/time.Second))
			return tag.RowsAffected(), err
		}, 2},
		{func() (int64, error) { return f.DeleteContents(t.Context(), 10*day) }, 0},
		{func() (int64, error) { return 0, tx.Rollback(t.Context()) }, 0}, // a crash
		{func() (int64, error) { return f.DeleteContents(t.Context(), 10*day) }, 2},
		{func() (int64, error) { return f.DeleteContents(t.Context(), 10*day) }, 1},
		{func() (int64, error) { return f.DeleteContents(t.Context(), 10*day) }, 0},
	} {
		if n, err := batch.sweep(); err != nil || n != batch.want {
			t.Fatalf("batch %d: %d deals, %v; want %d", i, n, err, batch.want)
		}
	}
}
