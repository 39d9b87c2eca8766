package store_test

import (
	"bytes"
	"context"
	"reflect"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

func stored(t *testing.T, what string, want bool) func(store.ActResult, error) {
	t.Helper()
	return func(got store.ActResult, err error) {
		t.Helper()
		if err != nil || got.Done != want {
			t.Errorf("%s: got %+v, %v; want Done %v", what, got, err, want)
		}
	}
}

func did(t *testing.T, what string, want bool) func(bool, error) {
	t.Helper()
	return func(done bool, err error) {
		t.Helper()
		if err != nil || done != want {
			t.Errorf("%s: got %v, %v; want %v", what, done, err, want)
		}
	}
}

// The transaction of the last commitment also moves the deal to REVEALING. The last reveal
// of a random.v1 deal sets reveals_closed_at. The last reveal of any other deal returns the same
// snapshot as a later read, unless the inputs are large.
func TestTheLastActAdvancesTheDeal(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for what, test := range map[string]struct {
		declare  func(*store.Declaration)
		size     int // bytes of the smallest input
		answered bool
	}{
		"split.v1":                      {parties(4), 1000, true},
		"split.v1 of SmallRead at most": {parties(4), store.SmallRead / 10, true},
		"split.v1 of more":              {parties(4), store.SmallRead/10 + 1, false},
		"random.v1":                     {func(d *store.Declaration) { parties(4)(d); random(d) }, 1000, false},
	} {
		t.Run(what, func(t *testing.T) {
			d := f.create(t, test.declare)
			steps := []struct {
				party int
				want  store.ActResult
			}{{1, store.ActResult{Done: true, Missing: 0}}, {0, store.ActResult{Done: true, Missing: 2}}, {3, store.ActResult{Done: true, Missing: 2}}, {2, store.ActResult{Done: true, All: true}}}
			run := func(do func(store.Act) (store.ActResult, error)) (got store.ActResult) {
				t.Helper()
				first := 0
				for _, step := range steps {
					a := act(d, step.party)
					a.First = first
					a.Sealed = bytes.Repeat([]byte{byte(step.party)}, test.size*(step.party+1))
					var err error
					if got, err = do(a); err != nil || got.Done != step.want.Done || got.All != step.want.All || got.Missing != step.want.Missing || got.Snapshot != nil && !got.All {
						t.Errorf("act of party %d: got %+v, %v; want %+v", step.party, got, err, step.want)
					}
					first = got.Missing
				}
				return got
			}
			run(func(a store.Act) (store.ActResult, error) { return f.Commit(ctx, a) })
			if now := f.current(t, d); now.Phase != deal.Revealing || now.CommitsClosedAt == nil || now.RevealsClosedAt != nil {
				t.Errorf("after the last commit: got %+v, want REVEALING with only commits_closed_at set", now)
			}
			if f.count(t, "SELECT count(*) FROM deals d JOIN commitments a USING (deal_id) WHERE deal_id = $1 AND party = 2 AND d.xmin = a.xmin AND commits_closed_at = committed_at", d.DealID) != 1 {
				t.Error("the last commit and the change of phase have different transactions or times, want the same")
			}
			last := run(func(a store.Act) (store.ActResult, error) { return f.Reveal(ctx, a) }).Snapshot
			if (last != nil) != test.answered {
				t.Fatalf("the last reveal returns inputs: %v, want %v", last != nil, test.answered)
			}
			if last != nil {
				read := f.snapshot(t, d, store.WithInputs(4))
				if last.Now < last.LastReveal || last.Now > read.Now || last.NowMilli/1000 != last.Now {
					t.Errorf("the answer has the time %d (%d ms), want one between the last reveal at %d and a later read at %d", last.Now, last.NowMilli, last.LastReveal, read.Now)
				}
				read.Now, read.NowMilli = last.Now, last.NowMilli
				if !reflect.DeepEqual(last, read) {
					t.Errorf("the last reveal returns %+v, want %+v, as a read does", last, read)
				}
			}
			now := f.current(t, d)
			if now.Phase != deal.Revealing || now.Reveals != 4 || (now.RevealsClosedAt != nil) != (d.ChainHash != nil) {
				t.Errorf("after the last reveal: got %+v, want REVEALING with 4 reveals, closed: %v", now, d.ChainHash != nil)
			}
			if d.ChainHash != nil && f.count(t, "SELECT count(*) FROM deals d JOIN reveals a USING (deal_id) WHERE deal_id = $1 AND party = 2 AND d.xmin = a.xmin AND reveals_closed_at = revealed_at", d.DealID) != 1 {
				t.Error("the last reveal and reveals_closed_at have different transactions or times, want the same")
			}
		})
	}
}

func TestAHintThatIsTooHighAdvancesNothing(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for _, first := range []int{2, 3, 4, 100} {
		d := f.create(t, func(d *store.Declaration) { parties(4)(d); random(d) })
		hinted := func(party int) store.Act {
			a := act(d, party)
			a.First = first
			return a
		}
		for _, do := range []func(context.Context, store.Act) (store.ActResult, error){f.Commit, f.Reveal} {
			before := f.current(t, d).Phase
			for _, party := range []int{3, 2, 1} {
				if got, err := do(ctx, hinted(party)); err != nil || !got.Done || got.All {
					t.Errorf("%s, first %d, act of party %d: got %+v, %v; want Done and not All", before, first, party, got, err)
				}
				if now := f.current(t, d); now.Phase != before || now.RevealsClosedAt != nil {
					t.Fatalf("%s, first %d: without party 0 the deal became %+v, want no change of phase", before, first, now)
				}
			}
			if before == deal.Committing {
				f.commit(t, d, 0)
			}
		}
		last := hinted(0)
		last.First = min(first, 3)
		if got, err := f.Reveal(ctx, last); err != nil || !got.Done || !got.All || f.current(t, d).RevealsClosedAt == nil {
			t.Errorf("first %d: the last reveal: got %+v, %v; want All and the reveals closed", first, got, err)
		}
	}
}

// Commits or reveals that run in one statement each get their own answer. Of two commits of
// one party, only the first is stored.
func TestActsOfOneGroup(t *testing.T) {
	f := newFixture(t)
	d, e, unknown := f.create(t, parties(3)), f.create(t, nil), &store.Declaration{DealID: "d_unknown"}
	second := act(d, 0)
	second.Commitment[0]++
	got, errs := f.CommitTogether(act(d, 0), act(e, 0), act(unknown, 0), act(d, 2), act(e, 1), act(e, 7), second)
	checkAll(t, errs)
	for i, want := range []store.ActResult{{Done: true, Missing: 1}, {Done: true, All: true}, {}, {Done: true, Missing: 1}, {Done: true, All: true}, {All: true}, {Missing: 1}} {
		if got[i].Done != want.Done || got[i].All != want.All || got[i].Missing != want.Missing {
			t.Errorf("commit %d: got %+v, want %+v", i, got[i], want)
		}
	}
	if c := f.snapshot(t, d, store.OneParty(0)).Parts[0].Commitment; *c != store.CommitmentText(ptr(act(d, 0).Commitment)[:]) {
		t.Errorf("party 0 has the commitment %s, want that of its first call", *c)
	}
	f.commit(t, d, 1)

	got, errs = f.RevealTogether(act(d, 0), wrong(act(d, 1)), act(e, 0), act(d, 2))
	checkAll(t, errs)
	for i, done := range []bool{true, false, true, true} {
		if got[i].Done != done || got[i].All {
			t.Errorf("reveal %d: got %+v, want Done %v and not All", i, got[i], done)
		}
	}
	both := f.create(t, nil)
	f.commit(t, both, 0, 1)
	last, errs := f.RevealTogether(act(both, 0), act(both, 1))
	checkAll(t, errs)
	if !last[0].Done || !last[0].All || !last[1].Done || !last[1].All || (last[0].Snapshot == nil) == (last[1].Snapshot == nil) {
		t.Errorf("the last reveals in one group: got %+v, want Done and All for both, Inputs for one", last)
	}
	for deal, reveals := range map[*store.Declaration]int{d: 2, e: 1} {
		if now := f.current(t, deal); now.Reveals != reveals {
			t.Errorf("%d reveals are stored, want %d", now.Reveals, reveals)
		}
	}
	third := act(d, 1)
	third.First = got[3].Missing
	if got, err := f.Reveal(t.Context(), third); err != nil || !got.All {
		t.Errorf("the last reveal: got %+v, %v; want All", got, err)
	}
}

// The statement that stores a commitment, reveal, rejection or cancellation checks the deadline by
// the database's clock.
func TestLateActsAreNotStored(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	d := f.create(t, nil)
	f.commit(t, d, 0)
	f.exec(t, "UPDATE deals SET commit_deadline = floor(extract(epoch FROM clock_timestamp())) WHERE deal_id = $1", d.DealID)
	stored(t, "commit in the second of the deadline", false)(f.Commit(ctx, act(d, 1)))
	did(t, "cancel in the second of the deadline", false)(f.Cancel(ctx, d.DealID, nil))
	if now := f.current(t, d); now.Phase != deal.Committing || now.Commits != 1 {
		t.Errorf("after a late commit: got %+v, want COMMITTING with 1 commitment", now)
	}

	d = f.create(t, nil)
	f.commit(t, d, 0, 1)
	f.exec(t, `UPDATE deals SET commit_deadline = 1, reveal_deadline = floor(extract(epoch FROM clock_timestamp())) WHERE deal_id = $1`, d.DealID)
	stored(t, "reveal in the second of the deadline", false)(f.Reveal(ctx, act(d, 0)))
	did(t, "rejection in the second of the deadline", false)(f.Reject(ctx, f.ending(t, d, deal.Void), act(d, 0)))
	if now := f.current(t, d); now.Phase != deal.Revealing || now.Reveals != 0 {
		t.Errorf("after a late reveal: got %+v, want REVEALING without reveals", now)
	}
}
