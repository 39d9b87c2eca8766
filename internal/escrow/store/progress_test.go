package store_test

import (
	"testing"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

// Store.Progress and Snapshot.Progress return equal values for a deal. Each commitment, reveal,
// phase change and publication of the certificate changes the value.
func TestProgressChangesWithTheView(t *testing.T) {
	f := newFixture(t)
	d, other := f.create(t, parties(3)), f.create(t, nil)
	f.commit(t, other, 0, 1)
	f.reveal(t, other, 0)
	progress := func() (store.Progress, bool) {
		t.Helper()
		all, err := f.Progress(t.Context(), []string{other.DealID, "d_none", d.DealID})
		check(t, err)
		var found store.DealProgress
		for _, p := range all {
			if p.DealID == d.DealID {
				found = p
			} else if want := (store.Progress{Phase: deal.Revealing, Acted: 1}); p.DealID != other.DealID || p.Progress != want || p.Due {
				t.Errorf("Store.Progress: got %+v for the other deal, want %+v, not due", p, want)
			}
		}
		if len(all) != 2 || found.Progress != f.current(t, d).Progress() {
			t.Errorf("Store.Progress: got %d deals, with %+v for the tested deal; want 2, with %+v", len(all), found, f.current(t, d).Progress())
		}
		return found.Progress, found.Due
	}
	before, due := progress()
	if before.State() != deal.Open || due {
		t.Errorf("a new deal has the progress %+v, due: %v; want OPEN, not due", before, due)
	}
	var e *store.Ending
	for _, step := range []struct {
		what  string
		take  func()
		state deal.State
		same  bool // expected result of now.Same(before, true)
	}{
		{"the first commit", func() { f.commit(t, d, 0) }, deal.Committing, false},
		{"a second commit", func() { f.commit(t, d, 2) }, deal.Committing, true},
		{"the last commit", func() { f.commit(t, d, 1) }, deal.Revealing, false},
		{"a reveal", func() { f.reveal(t, d, 1) }, deal.Revealing, true},
		{"the other reveals", func() { f.reveal(t, d, 0, 2) }, deal.Revealing, true},
		{"the end", func() { e = f.end(t, d, deal.Computed) }, deal.Computed, false},
		{"the certificate", func() {
			_, err := f.Publish(t.Context(), store.Publication{CertID: *e.CertID, Signature: "s", LeafIndex: 7})
			check(t, err)
		}, deal.Computed, false},
	} {
		step.take()
		now, due := progress()
		if now.Same(before, false) || now.Same(before, true) != step.same || now.State() != step.state || due {
			t.Errorf("after %s: got progress %+v (before %+v), due %v; want another value, state %s, same state %v, not due", step.what, now, before, due, step.state, step.same)
		}
		before = now
	}
}
