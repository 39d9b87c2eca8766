package store_test

import (
	"testing"

	"github.com/fairpact/fairpact/internal/deal"
)

// What runs is counted without a look at what has ended.
func TestLoadCountsWhatRuns(t *testing.T) {
	const ended = 100_000
	f := newFixture(t)
	empty, err := f.Load(t.Context(), deal.DrawDelay)
	if err != nil || empty.Committing+empty.Revealing+empty.Pending != 0 || empty.CommittingAge+empty.RevealingAge+empty.PendingAge+empty.Overdue+empty.DrawOverdue != 0 {
		t.Fatalf("nothing runs: %+v, %v", empty, err)
	}
	model := f.create(t, nil)
	f.exec(t, `INSERT INTO deals (deal_id, owner_hash, algorithm, params, mode, retention, parties, commit_deadline, reveal_deadline, created_at, phase, cert_id)
		SELECT 'e_' || i, owner_hash, algorithm, params, mode, retention, parties, i, i + 1, i, 'VOID', 'c_' || i FROM deals, generate_series(1, $1::int) i WHERE deal_id = $2`, ended, model.DealID)
	f.exec(t, `INSERT INTO certificates (cert_id, deal_id, payload, mac, leaf_index, created_at)
		SELECT cert_id, deal_id, '', '', commit_deadline, 1 FROM deals WHERE phase = 'VOID'`)
	revealing := f.create(t, nil)
	f.commit(t, revealing, 0, 1)
	overdue := f.create(t, nil)
	f.exec(t, `UPDATE deals SET created_at = created_at - 100, commit_deadline = extract(epoch FROM now())::bigint - 50 WHERE deal_id = $1`, overdue.DealID)
	drawing := f.create(t, nil)
	f.exec(t, `UPDATE deals SET phase = 'REVEALING', reveals_closed_at = extract(epoch FROM now())::bigint - $2::bigint - 70, round_time = 1 WHERE deal_id = $1`, drawing.DealID, deal.DrawDelay)
	pending := f.create(t, nil)
	f.exec(t, `UPDATE deals SET phase = 'VOID' WHERE deal_id = $1`, pending.DealID)
	f.exec(t, `INSERT INTO certificates (cert_id, deal_id, payload, mac, created_at) VALUES ('c_pending', $1, '', '', extract(epoch FROM now())::bigint - 30)`, pending.DealID)

	l, err := f.Load(t.Context(), deal.DrawDelay)
	if err != nil || l.Committing != 2 || l.Revealing != 2 || l.Pending != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	for name, age := range map[string][2]float64{"committing": {l.CommittingAge, 100}, "pending": {l.PendingAge, 30}, "overdue": {l.Overdue, 50}, "draw": {l.DrawOverdue, 70}} {
		if age[0] < age[1]-1 || age[0] > age[1]+60 {
			t.Errorf("%s for %.1f s, want about %.0f", name, age[0], age[1])
		}
	}
	p := f.planner(t)
	p.prepare(t, "load")
	for _, counted := range []bool{false, true} {
		if counted {
			f.exec(t, "ANALYZE deals, certificates")
		}
		if n := p.touched(t, "load", "60"); n > 200 {
			t.Errorf("the count looks at %.0f rows where 5 run and %d have ended (rows counted: %v)", n, ended, counted)
		}
	}
}
