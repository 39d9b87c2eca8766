package store_test

import (
	"testing"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/store"
)

// did holds what a step answered against what it should.
func did(t *testing.T, what string, want bool) func(bool, error) {
	t.Helper()
	return func(done bool, err error) {
		t.Helper()
		if err != nil || done != want {
			t.Errorf("%s: %v, %v; want %v", what, done, err, want)
		}
	}
}

func TestEachStepInItsPhaseOnly(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	d := b.created(t, nil)
	c := [32]byte(random32())

	did(t, "reveal before any commit", false)(b.Reveal(ctx, d.DealID, 0, []byte("x"), nil))
	did(t, "commit of a deal that is not there", false)(b.Commit(ctx, "d_other", 0, c, nil))
	did(t, "commit of party 1", true)(b.Commit(ctx, d.DealID, 1, c, nil))
	did(t, "the same again", false)(b.Commit(ctx, d.DealID, 1, c, nil))
	did(t, "another of the same party", false)(b.Commit(ctx, d.DealID, 1, [32]byte(random32()), nil))
	did(t, "cancel after a counterparty's commit", false)(b.Cancel(ctx, d.DealID, nil))
	if err := b.Advance(ctx, d.DealID); err != nil {
		t.Fatal(err)
	}
	if st := b.status(t, d.DealID); st.Phase != deal.Committing || st.CommitsClosedAt != nil || st.Commits != 1 {
		t.Errorf("advanced with one commit of two: %+v", st)
	}
	did(t, "reveal before all have committed", false)(b.Reveal(ctx, d.DealID, 1, []byte("x"), nil))
	// Two parties may hold the same commitment.
	did(t, "commit of party 0", true)(b.Commit(ctx, d.DealID, 0, c, nil))
	did(t, "reveal before the phase changed", false)(b.Reveal(ctx, d.DealID, 1, []byte("x"), nil))

	b.exec(t, "UPDATE commitments SET committed_at = committed_at + party + 5 WHERE deal_id = $1", d.DealID)
	for range 2 { // the second does nothing
		if err := b.Advance(ctx, d.DealID); err != nil {
			t.Fatal(err)
		}
	}
	_, standings, err := b.Standings(ctx, d.DealID)
	if err != nil {
		t.Fatal(err)
	}
	st := b.status(t, d.DealID)
	if st.Phase != deal.Revealing || st.CommitsClosedAt == nil || *st.CommitsClosedAt != standings[1].Committed {
		t.Errorf("after all have committed: %+v; the last one was accepted at %d", st, standings[1].Committed)
	}
	did(t, "commit while REVEALING", false)(b.Commit(ctx, d.DealID, 0, c, nil))
	did(t, "cancel while REVEALING", false)(b.Cancel(ctx, d.DealID, nil))
	did(t, "reveal", true)(b.Reveal(ctx, d.DealID, 1, []byte("x"), nil))
	did(t, "the same again", false)(b.Reveal(ctx, d.DealID, 1, []byte("x"), nil))

	wrong, first, second := b.ending(t, d, deal.Void), b.ending(t, d, deal.Void), b.ending(t, d, deal.Computed)
	wrong.From = deal.Committing
	did(t, "an end worked out for another phase", false)(b.End(ctx, wrong))
	did(t, "the end", true)(b.End(ctx, first))
	did(t, "reveal of an ended deal", false)(b.Reveal(ctx, d.DealID, 0, []byte("x"), nil))
	did(t, "a second end", false)(b.End(ctx, second))
}

func TestEndRefusesWhereTheCountsChanged(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	d := b.created(t, nil)
	b.commit(t, d, 0)
	stale := b.ending(t, d, deal.Void)
	b.commit(t, d, 1)
	stale.From = deal.Revealing // even where only the count tells
	did(t, "an end from before a commit", false)(b.End(ctx, stale))
	stale = b.ending(t, d, deal.Void)
	b.reveal(t, d, 0)
	did(t, "an end from before a reveal", false)(b.End(ctx, stale))
	did(t, "a rejection from before a reveal", false)(b.Reject(ctx, stale, 1, []byte("x"), nil))
	if st := b.status(t, d.DealID); st.Phase != deal.Revealing || st.CertID != nil || st.Reveals != 1 {
		t.Errorf("a refused end changed the deal: %+v", st)
	}
	if n := b.count(t, "SELECT count(*) FROM certificates"); n != 0 {
		t.Errorf("refused ends left %d certificates", n)
	}
}

// The deadline is the last word of the statement itself, on the database's clock.
func TestLateActionsAreNotInserted(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	d := b.created(t, nil)
	b.exec(t, "UPDATE deals SET commit_deadline = floor(extract(epoch FROM clock_timestamp())) WHERE deal_id = $1", d.DealID)
	did(t, "commit in the second of the deadline", false)(b.Commit(ctx, d.DealID, 0, [32]byte{}, nil))
	did(t, "cancel in the second of the deadline", false)(b.Cancel(ctx, d.DealID, nil))

	d = b.created(t, nil)
	b.commit(t, d, 0, 1)
	b.exec(t, `UPDATE deals SET commit_deadline = 1, reveal_deadline = floor(extract(epoch FROM clock_timestamp())) WHERE deal_id = $1`, d.DealID)
	did(t, "reveal in the second of the deadline", false)(b.Reveal(ctx, d.DealID, 0, []byte("x"), nil))
	did(t, "rejection in the second of the deadline", false)(b.Reject(ctx, b.ending(t, d, deal.Void), 0, []byte("x"), nil))
	if st := b.status(t, d.DealID); st.Phase != deal.Revealing || st.Reveals != 0 {
		t.Errorf("a late action changed the deal: %+v", st)
	}
}

func TestCancelOfTheInitiatorsOwnCommit(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for _, committed := range [][]int{nil, {0}} {
		d := b.created(t, nil)
		b.commit(t, d, committed...)
		did(t, "cancel", true)(b.Cancel(ctx, d.DealID, nil))
		did(t, "a second cancel", false)(b.Cancel(ctx, d.DealID, nil))
		did(t, "commit of a cancelled deal", false)(b.Commit(ctx, d.DealID, 1, [32]byte{}, nil))
		if st := b.status(t, d.DealID); st.Phase != deal.Cancelled || st.CertID != nil {
			t.Errorf("cancelled: %+v", st)
		}
	}
}

func TestFirstMissing(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	d := b.created(t, func(d *store.Static) { d.Labels = []string{"a", "b", "c", "d"} })
	for _, step := range []struct {
		commit int
		first  int
		some   bool
	}{{1, 0, true}, {0, 2, true}, {3, 2, true}, {2, 0, false}} {
		b.commit(t, d, step.commit)
		first, some, err := b.FirstMissingCommit(ctx, d.DealID, 0)
		if err != nil || first != step.first || some != step.some {
			t.Errorf("after the commit of %d: %d, %v, %v; want %d, %v", step.commit, first, some, err, step.first, step.some)
		}
	}
	b.reveal(t, d, 0, 2)
	for from, want := range map[int]int{0: 1, 1: 1, 2: 3, 3: 3} {
		if first, some, err := b.FirstMissingReveal(ctx, d.DealID, from); err != nil || first != want || !some {
			t.Errorf("reveals from %d on: %d, %v, %v; want %d", from, first, some, err, want)
		}
	}
}
