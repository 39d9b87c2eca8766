package store_test

import (
	"slices"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

const horizon = 3

func (f *fixture) due(t *testing.T, d *store.Declaration, horizon int64) (in int64, listed bool) {
	t.Helper()
	all, err := f.Due(t.Context(), horizon, 1000, nil)
	check(t, err)
	for _, one := range all {
		if one.DealID == d.DealID {
			return one.In, true
		}
	}
	return 0, false
}

func (f *fixture) lists(t *testing.T, what string, d *store.Declaration, due, complete bool) {
	t.Helper()
	if _, listed := f.due(t, d, horizon); listed != due {
		t.Errorf("%s: Due lists the deal: %v, want %v", what, listed, due)
	}
	all, err := f.ListComplete(t.Context(), 1000)
	check(t, err)
	if listed := slices.Contains(all, d.DealID); listed != complete {
		t.Errorf("%s: ListComplete lists the deal: %v, want %v", what, listed, complete)
	}
}

// deadlines sets a deal's deadlines, in seconds from now.
func (f *fixture) deadlines(t *testing.T, d *store.Declaration, commit, reveal int64) {
	t.Helper()
	now := f.now(t)
	f.exec(t, "UPDATE deals SET commit_deadline = $2, reveal_deadline = $3 WHERE deal_id = $1", d.DealID, now+commit, now+reveal)
}

func (f *fixture) acted(t *testing.T, seconds int64) {
	t.Helper()
	f.exec(t, "UPDATE commitments SET committed_at = committed_at - $1::bigint", seconds)
	f.exec(t, "UPDATE reveals SET revealed_at = revealed_at - $1::bigint", seconds)
}

func TestListingsOfDeadlines(t *testing.T) {
	f := newFixture(t)
	d := f.create(t, nil)
	f.lists(t, "an hour to go", d, false, false)
	if in, listed := f.due(t, d, 7200); !listed || in > 3_600_000 || in <= 0 {
		t.Errorf("Due with a horizon of two hours: listed %v, in %d ms; want true, in 1 to 3600000 ms", listed, in)
	}
	f.deadlines(t, d, 1, 3600)
	f.lists(t, "a second to go", d, true, false)
	f.deadlines(t, d, -10, 3600)
	f.lists(t, "overdue", d, true, false)
	if in, _ := f.due(t, d, horizon); in > -9_000 {
		t.Errorf("overdue by 10 s: listed in %d ms, want at most -9000", in)
	}
	f.deadlines(t, d, 3600, 7200)
	f.commit(t, d, 0)
	f.lists(t, "one of two has committed", d, false, false)
	f.commit(t, d, 1)
	f.deadlines(t, d, -10, 3600)
	f.lists(t, "REVEALING, the commit deadline is over", d, false, false)
	f.reveal(t, d, 0)
	f.lists(t, "one of two has revealed", d, false, false)
	f.deadlines(t, d, -10, 1)
	f.lists(t, "the same, a second to go", d, true, false)
	f.deadlines(t, d, -10, 3600)
	f.reveal(t, d, 1)
	f.lists(t, "both have revealed, not computed, the last one just now", d, false, false)
	f.acted(t, 5)
	f.lists(t, "both have revealed, not computed", d, false, true)
	f.deadlines(t, d, -10, -1)
	f.lists(t, "the same, overdue", d, true, true)

	e := f.ending(t, d, deal.Computed)
	e.At += 3600
	did(t, "end", true)(f.End(t.Context(), e))
	f.lists(t, "ended, the call that ended it issues the certificate", d, false, false)
	f.exec(t, "UPDATE certificates SET created_at = created_at - 3604")
	f.lists(t, "ended, the certificate is pending", d, true, false)
	if in, _ := f.due(t, d, horizon); in != 0 {
		t.Errorf("a pending certificate is due in %d ms, want 0", in)
	}
	check(t, f.SetSignature(t.Context(), *e.CertID, "es256:00", nil))
	f.lists(t, "signed", d, true, false)
	did(t, "publish", true)(f.Publish(t.Context(), store.Publication{CertID: *e.CertID, Signature: "es256:00"}))
	f.lists(t, "published", d, false, false)
}

// If all parties of a random.v1 deal have revealed, Store.Due MUST NOT list the deal before its
// draw is due. Until then the worker has no step to take.
func TestListingsOfADraw(t *testing.T) {
	f := newFixture(t)
	d := f.create(t, random)
	at := func(round, reveals int64) { // both in seconds from now
		now := f.now(t)
		f.exec(t, "UPDATE deals SET round_time = $2 WHERE deal_id = $1", d.DealID, now+round)
		f.exec(t, "UPDATE reveals SET revealed_at = $2 WHERE deal_id = $1", d.DealID, now+reveals)
		f.exec(t, "UPDATE deals SET reveals_closed_at = $2 WHERE deal_id = $1 AND reveals_closed_at IS NOT NULL", d.DealID, now+reveals)
	}
	f.commit(t, d, 0, 1)
	f.reveal(t, d, 1)
	f.lists(t, "one of two has revealed", d, false, false)
	for _, round := range []int64{3600, -3600} {
		at(round, -3600)
		f.deadlines(t, d, -10, -1)
		f.lists(t, "one is missing, overdue, whether or not the round is published", d, true, false)
	}
	f.deadlines(t, d, -10, 3600)
	f.reveal(t, d, 0)
	f.acted(t, 5)
	for _, revealDeadline := range []int64{3600, 1, -1, -3600} {
		f.deadlines(t, d, -7200, revealDeadline)
		at(3600, -3600)
		f.lists(t, "complete, the round is not published yet", d, false, false)
		at(1-deal.DrawDelay+20, -3600)
		f.lists(t, "complete, the round has just been published: the parties may draw", d, false, false)
		at(-3600, -deal.DrawDelay+20)
		f.lists(t, "complete, the round was published long ago and the last reveal is new", d, false, false)
		at(-deal.DrawDelay, -deal.DrawDelay)
		f.lists(t, "complete, the draw is due", d, true, false)
	}
	for what, set := range map[string]string{"with seals": "seal_time = 1, audience = NULL", "with an audience": "seal_time = NULL, audience = 'public'"} {
		f.exec(t, "UPDATE deals SET "+set+" WHERE deal_id = $1", d.DealID)
		at(3600, -3600)
		f.lists(t, what+", the round is not published yet", d, false, false)
		at(2, -3600)
		f.lists(t, what+", the round is due within the horizon", d, true, false)
		at(-1, -3600)
		f.lists(t, what+", the round has just been published: nobody is waited for", d, true, false)
	}
}

func TestListingsAreLimited(t *testing.T) {
	f := newFixture(t)
	for range 5 {
		d := f.create(t, nil)
		f.commit(t, d, 0, 1)
		f.reveal(t, d, 0, 1)
		f.deadlines(t, d, -20, -10)
	}
	f.acted(t, 5)
	if due, err := f.Due(t.Context(), horizon, 3, nil); err != nil || len(due) != 3 {
		t.Errorf("Due with limit 3 and 5 overdue deals: got %d, %v; want 3", len(due), err)
	}
	if complete, err := f.ListComplete(t.Context(), 3); err != nil || len(complete) != 3 {
		t.Errorf("ListComplete with limit 3 and 5 complete deals: got %d, %v; want 3", len(complete), err)
	}
}

// Load does not read the deals that have ended.
func TestLoad(t *testing.T) {
	const ended = 20_000
	f := newFixture(t)
	if empty, err := f.Load(t.Context()); err != nil || empty != (store.Load{}) {
		t.Fatalf("Load without deals: got %+v, %v; want zeros", empty, err)
	}
	f.burst(t, f.create(t, nil).DealID, ended)
	f.commit(t, f.create(t, nil), 0, 1)
	f.exec(t, `UPDATE deals SET created_at = created_at - 100, commit_deadline = extract(epoch FROM now())::bigint - 50 WHERE deal_id = $1`, f.create(t, nil).DealID)
	f.exec(t, `UPDATE deals SET phase = 'REVEALING', reveals_closed_at = extract(epoch FROM now())::bigint - $2::bigint - 30, round_time = 1 WHERE deal_id = $1`, f.create(t, nil).DealID, deal.DrawDelay)
	f.exec(t, `UPDATE deals SET phase = 'REVEALING', reveals_closed_at = extract(epoch FROM now())::bigint - 70, round_time = 1, seal_time = 1 WHERE deal_id = $1`, f.create(t, nil).DealID)
	e := f.end(t, f.create(t, nil), deal.Void)
	f.exec(t, "UPDATE certificates SET created_at = extract(epoch FROM now())::bigint - 30 WHERE cert_id = $1", e.CertID)

	l, err := f.Load(t.Context())
	if err != nil || l.Committing != 2 || l.Revealing != 3 || l.Pending != 1 {
		t.Fatalf("Load: got %+v, %v; want 2 committing, 3 revealing and 1 pending", l, err)
	}
	for name, age := range map[string][2]float64{"committing": {l.CommittingAge, 100}, "pending": {l.PendingAge, 30}, "overdue": {l.Overdue, 50}, "draw": {l.DrawOverdue, 70}} {
		if age[0] < age[1]-1 || age[0] > age[1]+60 {
			t.Errorf("Load: age %s is %.1f s, want %.0f to %.0f s", name, age[0], age[1]-1, age[1]+60)
		}
	}
	p := f.planner(t)
	p.prepare(t, "load")
	for _, analysed := range []bool{false, true} {
		if analysed {
			f.exec(t, "ANALYZE deals, certificates")
		}
		if n := p.touched(t, "load", "60"); n > 200 {
			t.Errorf("Load reads %.0f rows with 5 open and %d ended deals (analysed: %v), want at most 200", n, ended, analysed)
		}
	}
}
