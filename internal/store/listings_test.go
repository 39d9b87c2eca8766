package store_test

import (
	"slices"
	"testing"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/store"
)

const (
	horizon   = 3
	drawDelay = 60
	farFuture = 1<<53 - 1
)

// due gives when a deal is listed, in milliseconds from now.
func (b *bench) due(t *testing.T, d *store.Static, horizon int64) (in int64, listed bool) {
	t.Helper()
	all, err := b.Due(t.Context(), horizon, 1000, drawDelay)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.DealID == d.DealID {
			return one.In, true
		}
	}
	return 0, false
}

func (b *bench) isComplete(t *testing.T, d *store.Static) bool {
	t.Helper()
	all, err := b.Complete(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(all, d.DealID)
}

// lists holds both listings of a deal against what they should show.
func (b *bench) lists(t *testing.T, what string, d *store.Static, due, complete bool) {
	t.Helper()
	if _, listed := b.due(t, d, horizon); listed != due {
		t.Errorf("%s: due %v, want %v", what, listed, due)
	}
	if listed := b.isComplete(t, d); listed != complete {
		t.Errorf("%s: complete %v, want %v", what, listed, complete)
	}
}

// deadlines moves a deal's deadlines to so many seconds from now.
func (b *bench) deadlines(t *testing.T, d *store.Static, commit, reveal int64) {
	t.Helper()
	now, err := b.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, "UPDATE deals SET commit_deadline = $2, reveal_deadline = $3 WHERE deal_id = $1", d.DealID, now+commit, now+reveal)
}

func TestListingsOfDeadlines(t *testing.T) {
	b := newBench(t)
	d := b.created(t, nil)
	b.lists(t, "an hour to go", d, false, false)
	if in, listed := b.due(t, d, 7200); !listed || in > 3_600_000 || in <= 0 {
		t.Errorf("within two hours: listed %v, in %d ms", listed, in)
	}
	b.deadlines(t, d, 1, 3600)
	b.lists(t, "a second to go", d, true, false)
	b.deadlines(t, d, -10, 3600)
	b.lists(t, "overdue", d, true, false)
	if in, _ := b.due(t, d, horizon); in > -9_000 {
		t.Errorf("overdue by 10 s: in %d ms", in)
	}
	b.deadlines(t, d, 3600, 7200)
	b.commit(t, d, 0)
	b.lists(t, "one of two has committed", d, false, false)
	if ok, err := b.Commit(t.Context(), d.DealID, 1, [32]byte{}, nil); err != nil || !ok {
		t.Fatal(ok, err)
	}
	b.lists(t, "both have committed, not advanced", d, false, true)
	b.commit(t, d)
	b.deadlines(t, d, -10, 3600)
	b.lists(t, "REVEALING, the commit deadline is over", d, false, false)
	b.reveal(t, d, 0)
	b.lists(t, "one of two has revealed", d, false, false)
	b.deadlines(t, d, -10, 1)
	b.lists(t, "the same, a second to go", d, true, false)
	b.deadlines(t, d, -10, 3600)
	b.reveal(t, d, 1)
	b.lists(t, "both have revealed, not computed", d, false, true)
	b.deadlines(t, d, -10, -1)
	b.lists(t, "the same, overdue", d, true, true)

	e := b.ending(t, d, deal.Computed)
	if done, err := b.End(t.Context(), e); err != nil || !done {
		t.Fatal(done, err)
	}
	b.lists(t, "ended, the certificate is pending", d, true, false)
	if in, _ := b.due(t, d, horizon); in != 0 {
		t.Errorf("a pending certificate is due in %d ms, want at once", in)
	}
	if err := b.SetSignature(t.Context(), *e.CertID, "es256:00", nil); err != nil {
		t.Fatal(err)
	}
	b.lists(t, "signed", d, true, false)
	if _, err := b.SetLeaf(t.Context(), *e.CertID, 0); err != nil {
		t.Fatal(err)
	}
	b.lists(t, "published", d, false, false)
}

// A random.v1 deal that waits for its draw time MUST NOT be listed: the worker
// could do nothing for it and would ask again at every listing.
func TestListingsOfADraw(t *testing.T) {
	b := newBench(t)
	random := b.created(t, func(d *store.Static) {
		d.Algorithm, d.ChainHash, d.BeaconRound, d.RoundTime = "random.v1", ptr("00"), ptr(int64(1)), ptr(d.RevealDeadline+60)
	})
	at := func(round, reveals int64) { // seconds from now
		now, err := b.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.exec(t, "UPDATE deals SET round_time = $2 WHERE deal_id = $1", random.DealID, now+round)
		b.exec(t, "UPDATE reveals SET revealed_at = $2 WHERE deal_id = $1", random.DealID, now+reveals)
		b.exec(t, "UPDATE deals SET reveals_closed_at = $2 WHERE deal_id = $1 AND reveals_closed_at IS NOT NULL", random.DealID, now+reveals)
	}
	b.commit(t, random, 0, 1)
	b.reveal(t, random, 1)
	b.lists(t, "one of two has revealed", random, false, false)
	for _, early := range []int64{3600, -3600} {
		at(early, -3600)
		b.deadlines(t, random, -10, -1)
		b.lists(t, "one is missing, overdue, whenever the round is out", random, true, false)
	}
	b.deadlines(t, random, -10, 3600)
	for range 2 { // before the last reveal, and again after it, it does nothing and all
		if err := b.CloseReveals(t.Context(), random.DealID); err != nil {
			t.Fatal(err)
		}
		if st := b.status(t, random.DealID); (st.RevealsClosedAt != nil) != (st.Reveals == 2) {
			t.Fatalf("closed with %d reveals: %v", st.Reveals, st.RevealsClosedAt)
		}
		if b.status(t, random.DealID).Reveals == 1 {
			b.reveal(t, random, 0)
			b.lists(t, "complete, not noted as that", random, false, true)
		}
	}
	for _, revealDeadline := range []int64{3600, 1, -1, -3600} {
		b.deadlines(t, random, -7200, revealDeadline)
		at(3600, -3600)
		b.lists(t, "complete, the round is to come", random, false, false)
		at(1-drawDelay+20, -3600)
		b.lists(t, "complete, the round is out and left to the parties", random, false, false)
		at(-3600, -drawDelay+20)
		b.lists(t, "complete, the round is long out and the last reveal is new", random, false, false)
		at(-drawDelay, -drawDelay)
		b.lists(t, "complete, the draw is due", random, true, false)
	}
}

func TestListingsAreLimited(t *testing.T) {
	b := newBench(t)
	var complete []string
	for range 5 {
		overdue, whole := b.created(t, nil), b.created(t, nil)
		b.deadlines(t, overdue, -10, 3600)
		for party := range 2 {
			if ok, err := b.Commit(t.Context(), whole.DealID, party, [32]byte{}, nil); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
		complete = append(complete, whole.DealID)
	}
	due, err := b.Due(t.Context(), horizon, 3, drawDelay)
	if err != nil || len(due) != 3 {
		t.Errorf("3 of 5 overdue deals: %d, %v", len(due), err)
	}
	some, err := b.Complete(t.Context(), 3)
	if err != nil || len(some) != 3 {
		t.Errorf("3 of 5 complete deals: %d, %v", len(some), err)
	}
	for _, dealID := range some {
		if !slices.Contains(complete, dealID) {
			t.Errorf("%s is not complete", dealID)
		}
	}
}

// SPEC 2.2 names no latest deadline: the largest integer of I-JSON works.
func TestTheLastDeadlines(t *testing.T) {
	b := newBench(t)
	d := b.created(t, func(d *store.Static) {
		d.CommitDeadline, d.RevealDeadline = farFuture-1, farFuture
		d.Algorithm, d.ChainHash, d.BeaconRound, d.RoundTime = "random.v1", ptr("00"), ptr(int64(farFuture)), ptr(int64(1<<63-1))
	})
	got, err := b.Static(t.Context(), d.DealID)
	if err != nil || got.CommitDeadline != farFuture-1 || got.RevealDeadline != farFuture || *got.BeaconRound != farFuture || *got.RoundTime != 1<<63-1 {
		t.Errorf("read back: %+v, %v", got, err)
	}
	b.lists(t, "COMMITTING", d, false, false)
	in, listed := b.due(t, d, farFuture)
	if !listed || in <= 1<<52*1000 {
		t.Errorf("with a horizon that reaches it: %v, in %d ms", listed, in)
	}
	b.commit(t, d, 0, 1)
	b.reveal(t, d, 0)
	b.lists(t, "REVEALING", d, false, false)
	if _, listed := b.due(t, d, farFuture); !listed {
		t.Error("with a horizon that reaches it the reveal deadline is not listed")
	}
	b.reveal(t, d, 1)
	b.lists(t, "complete, not noted as that", d, false, true)
	if err := b.CloseReveals(t.Context(), d.DealID); err != nil {
		t.Fatal(err)
	}
	b.lists(t, "complete", d, false, false)
}
