package store_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/store"
)

// stored holds the answer to an act against whether it should have been stored.
func stored(t *testing.T, what string, want bool) func(store.Acted, error) {
	t.Helper()
	return func(got store.Acted, err error) {
		t.Helper()
		if err != nil || got.Done != want {
			t.Errorf("%s: %+v, %v; want done %v", what, got, err, want)
		}
	}
}

// did is stored for a call that answers a boolean.
func did(t *testing.T, what string, want bool) func(bool, error) {
	t.Helper()
	return func(done bool, err error) {
		t.Helper()
		if err != nil || done != want {
			t.Errorf("%s: %v, %v; want %v", what, done, err, want)
		}
	}
}

func TestEachActInItsPhaseOnly(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	d := f.create(t, nil)
	other := act(d, 1)
	other.Commitment = [32]byte(random32())

	stored(t, "reveal before any commit", false)(f.Reveal(ctx, act(d, 0)))
	stored(t, "commit to an unknown deal", false)(f.Commit(ctx, store.Act{DealID: "d_unknown"}))
	stored(t, "commit of a party that the deal does not have", false)(f.Commit(ctx, act(d, 2)))
	stored(t, "commit of party 1", true)(f.Commit(ctx, act(d, 1)))
	stored(t, "the same commit again", false)(f.Commit(ctx, act(d, 1)))
	stored(t, "another commit of the same party", false)(f.Commit(ctx, other))
	did(t, "cancel after a counterparty's commit", false)(f.Cancel(ctx, d.DealID, nil))
	check(t, f.CatchUp(ctx, d.DealID))
	if now := f.stands(t, d); now.Phase != deal.Committing || now.CommitsClosedAt != nil || now.Commits != 1 {
		t.Errorf("after one commit of two: %+v", now)
	}
	stored(t, "reveal before all have committed", false)(f.Reveal(ctx, act(d, 1)))
	same := act(d, 0)
	same.Commitment = act(d, 1).Commitment
	stored(t, "commit of party 0 to the same hash", true)(f.Commit(ctx, same))

	stored(t, "commit while REVEALING", false)(f.Commit(ctx, act(d, 0)))
	did(t, "cancel while REVEALING", false)(f.Cancel(ctx, d.DealID, nil))
	stored(t, "reveal of another commitment than the party's", false)(f.Reveal(ctx, act(d, 0)))
	stored(t, "reveal", true)(f.Reveal(ctx, act(d, 1)))
	stored(t, "the same reveal again", false)(f.Reveal(ctx, act(d, 1)))

	f.end(t, d, deal.Void)
	stored(t, "reveal of an ended deal", false)(f.Reveal(ctx, same))
	if now := f.stands(t, d); now.Commits != 2 || now.Reveals != 1 {
		t.Errorf("at the end: %+v", now)
	}
}

// The last commitment advances the deal, and the last reveal of random.v1 closes
// the reveals, in the transaction that stores it: there is no time in between. The
// last reveal is answered what a read of the deal finds after it, unless the deal
// waits for its beacon round or its inputs are large.
func TestTheLastActAdvancesTheDeal(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for what, test := range map[string]struct {
		declare  func(*store.Declaration)
		size     int // of the smallest input
		answered bool
	}{
		"split.v1":          {parties(4), 10_000, true},
		"split.v1 of 1 MiB": {parties(4), 1 << 20 / 10, true},
		"split.v1 of more":  {parties(4), 1<<20/10 + 1, false},
		"random.v1":         {func(d *store.Declaration) { parties(4)(d); random(d) }, 10_000, false},
	} {
		t.Run(what, func(t *testing.T) {
			d := f.create(t, test.declare)
			steps := []struct {
				party int
				want  store.Acted
			}{{1, store.Acted{Done: true, Missing: 0}}, {0, store.Acted{Done: true, Missing: 2}}, {3, store.Acted{Done: true, Missing: 2}}, {2, store.Acted{Done: true, All: true}}}
			run := func(do func(store.Act) (store.Acted, error)) (got store.Acted) {
				t.Helper()
				first := 0
				for _, step := range steps {
					a := act(d, step.party)
					a.First = first // as a caller that remembers the last answer
					a.Sealed = bytes.Repeat([]byte{byte(step.party)}, test.size*(step.party+1))
					var err error
					if got, err = do(a); err != nil || got.Done != step.want.Done || got.All != step.want.All || got.Missing != step.want.Missing || got.Inputs != nil && !got.All {
						t.Errorf("party %d: %+v, %v; want %+v", step.party, got, err, step.want)
					}
					first = got.Missing
				}
				return got
			}
			run(func(a store.Act) (store.Acted, error) { return f.Commit(ctx, a) })
			if now := f.stands(t, d); now.Phase != deal.Revealing || now.CommitsClosedAt == nil || now.RevealsClosedAt != nil {
				t.Errorf("after the last commit: %+v", now)
			}
			if f.count(t, "SELECT count(*) FROM deals d JOIN commitments a USING (deal_id) WHERE deal_id = $1 AND party = 2 AND d.xmin = a.xmin AND commits_closed_at = committed_at", d.DealID) != 1 {
				t.Error("the last commit and the change of phase are of different transactions or times")
			}
			last := run(func(a store.Act) (store.Acted, error) { return f.Reveal(ctx, a) }).Inputs
			if (last != nil) != test.answered {
				t.Fatalf("the last reveal is answered the inputs: %v, want %v", last != nil, test.answered)
			}
			if last != nil {
				read := f.snapshot(t, d, store.WithInputs)
				if last.Now < last.LastReveal || last.Now > read.Now || last.NowMilli/1000 != last.Now {
					t.Errorf("the last reveal was at %d, its answer is of %d (%d ms), and now it is %d", last.LastReveal, last.Now, last.NowMilli, read.Now)
				}
				read.Now, read.NowMilli = last.Now, last.NowMilli
				if !reflect.DeepEqual(last, read) {
					t.Errorf("the last reveal is answered %+v, and %+v is stored", last, read)
				}
			}
			now := f.stands(t, d)
			if now.Phase != deal.Revealing || now.Reveals != 4 || (now.RevealsClosedAt != nil) != (d.ChainHash != nil) {
				t.Errorf("after the last reveal: %+v", now)
			}
			if d.ChainHash != nil && f.count(t, "SELECT count(*) FROM deals d JOIN reveals a USING (deal_id) WHERE deal_id = $1 AND party = 2 AND d.xmin = a.xmin AND reveals_closed_at = revealed_at", d.DealID) != 1 {
				t.Error("the last reveal and the close of the reveals are of different transactions or times")
			}
		})
	}
}

// First is a hint of the caller: one that is too high costs no correctness.
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
		for _, party := range []int{3, 2, 1} { // party 0 is missing all the time
			if got, err := f.Commit(ctx, hinted(party)); err != nil || !got.Done || got.All {
				t.Errorf("first %d, commit of party %d: %+v, %v", first, party, got, err)
			}
			if now := f.stands(t, d); now.Phase != deal.Committing || now.CommitsClosedAt != nil {
				t.Fatalf("first %d: advanced without party 0: %+v", first, now)
			}
		}
		f.commit(t, d, 0)
		for _, party := range []int{3, 2, 1} {
			if got, err := f.Reveal(ctx, hinted(party)); err != nil || !got.Done || got.All {
				t.Errorf("first %d, reveal of party %d: %+v, %v", first, party, got, err)
			}
			if f.stands(t, d).RevealsClosedAt != nil {
				t.Fatalf("first %d: reveals closed without party 0", first)
			}
		}
		last := hinted(0)
		last.First = min(first, 3)
		if got, err := f.Reveal(ctx, last); err != nil || !got.Done || !got.All || f.stands(t, d).RevealsClosedAt == nil {
			t.Errorf("first %d: the last reveal answers %+v, %v", first, got, err)
		}
	}
}

// Of a party's twin acts the first is stored; the hint is the highest of the
// group; each call is answered for itself.
func TestActsOfOneGroup(t *testing.T) {
	f := newFixture(t)
	d, e, unknown := f.create(t, parties(3)), f.create(t, nil), &store.Declaration{DealID: "d_unknown"}
	twin := act(d, 0)
	twin.Commitment[0]++
	got, errs := f.CommitTogether(act(d, 0), act(e, 0), act(unknown, 0), act(d, 2), act(e, 1), act(e, 7), twin)
	checkAll(t, errs)
	for i, want := range []store.Acted{{Done: true, Missing: 1}, {Done: true, All: true}, {}, {Done: true, Missing: 1}, {Done: true, All: true}, {All: true}, {Missing: 1}} {
		if got[i].Done != want.Done || got[i].All != want.All || got[i].Missing != want.Missing {
			t.Errorf("commit %d: %+v, want %+v", i, got[i], want)
		}
	}
	if c := f.snapshot(t, d, store.Only(0)).Parts[0].Commitment; *c != store.CommitmentText(ptr(act(d, 0).Commitment)[:]) {
		t.Error("the second of two twins was stored")
	}
	f.commit(t, d, 1)

	got, errs = f.RevealTogether(act(d, 0), wrong(act(d, 1)), act(e, 0), act(d, 2))
	checkAll(t, errs)
	for i, done := range []bool{true, false, true, true} {
		if got[i].Done != done || got[i].All {
			t.Errorf("reveal %d: %+v, want done %v and somebody missing", i, got[i], done)
		}
	}
	for deal, reveals := range map[*store.Declaration]int{d: 2, e: 1} {
		if now := f.stands(t, deal); now.Reveals != reveals {
			t.Errorf("%d reveals are stored, want %d", now.Reveals, reveals)
		}
	}
	// What the group before answered about who is missing may be the hint of the next.
	last := act(d, 1)
	last.First = got[3].Missing
	if got, err := f.Reveal(t.Context(), last); err != nil || !got.All {
		t.Errorf("the last reveal: %+v, %v", got, err)
	}
}

// The deadline is decided in the statement itself, on the database's clock.
func TestLateActsAreNotStored(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	d := f.create(t, nil)
	f.commit(t, d, 0)
	f.exec(t, "UPDATE deals SET commit_deadline = floor(extract(epoch FROM clock_timestamp())) WHERE deal_id = $1", d.DealID)
	stored(t, "commit in the second of the deadline", false)(f.Commit(ctx, act(d, 1)))
	did(t, "cancel in the second of the deadline", false)(f.Cancel(ctx, d.DealID, nil))
	if now := f.stands(t, d); now.Phase != deal.Committing || now.Commits != 1 {
		t.Errorf("a late commit changed the deal: %+v", now)
	}

	d = f.create(t, nil)
	f.commit(t, d, 0, 1)
	f.exec(t, `UPDATE deals SET commit_deadline = 1, reveal_deadline = floor(extract(epoch FROM clock_timestamp())) WHERE deal_id = $1`, d.DealID)
	stored(t, "reveal in the second of the deadline", false)(f.Reveal(ctx, act(d, 0)))
	did(t, "rejection in the second of the deadline", false)(f.Reject(ctx, f.ending(t, d, deal.Void), act(d, 0)))
	if now := f.stands(t, d); now.Phase != deal.Revealing || now.Reveals != 0 {
		t.Errorf("a late reveal changed the deal: %+v", now)
	}
}

func TestCancelBeforeAnyCounterpartyCommitted(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for _, committed := range [][]int{nil, {0}} {
		d := f.create(t, nil)
		f.commit(t, d, committed...)
		did(t, "cancel", true)(f.Cancel(ctx, d.DealID, nil))
		did(t, "a second cancel", false)(f.Cancel(ctx, d.DealID, nil))
		stored(t, "commit to a cancelled deal", false)(f.Commit(ctx, act(d, 1)))
		if now := f.stands(t, d); now.Phase != deal.Cancelled || now.CertID != nil {
			t.Errorf("cancelled: %+v", now)
		}
	}
	did(t, "cancel of an unknown deal", false)(f.Cancel(ctx, "d_unknown", nil))
}

// A process of an older release that died before the change of phase leaves a
// deal that CatchUp moves on, with the times at which the last ones acted.
func TestCatchUpFinishesWhatAnOlderReleaseLeft(t *testing.T) {
	f := newFixture(t)
	for what, declare := range map[string]func(*store.Declaration){"split.v1": nil, "random.v1": random} {
		t.Run(what, func(t *testing.T) {
			d := f.create(t, declare)
			f.leave(t, d, true)
			for range 2 { // the second does nothing
				check(t, f.CatchUp(t.Context(), d.DealID))
				if now := f.stands(t, d); now.Phase != deal.Revealing || now.CommitsClosedAt == nil || *now.CommitsClosedAt != 1001 || now.RevealsClosedAt != nil {
					t.Fatalf("after the last commit: %+v", now)
				}
			}
			f.reveal(t, d, 0)
			check(t, f.CatchUp(t.Context(), d.DealID))
			if now := f.stands(t, d); now.RevealsClosedAt != nil {
				t.Fatalf("closed with one reveal: %+v", now)
			}
			f.leave(t, d, false)
			f.exec(t, "UPDATE reveals SET revealed_at = 2000 + party WHERE deal_id = $1", d.DealID)
			for range 2 {
				check(t, f.CatchUp(t.Context(), d.DealID))
				if now := f.stands(t, d); (now.RevealsClosedAt != nil) != (d.ChainHash != nil) || d.ChainHash != nil && *now.RevealsClosedAt != 2001 {
					t.Fatalf("after the last reveal: %+v", now)
				}
			}
			f.end(t, d, deal.Computed)
			check(t, f.CatchUp(t.Context(), d.DealID))
			if now := f.stands(t, d); now.Phase != deal.Computed {
				t.Errorf("an ended deal was advanced: %+v", now)
			}
		})
	}
}
