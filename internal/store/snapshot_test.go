package store_test

import (
	"reflect"
	"testing"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/store"
)

// A snapshot has only the wanted parts, whether its call runs alone or in one statement with
// calls for other deals.
func TestSnapshotHoldsTheWantedParts(t *testing.T) {
	f := newFixture(t)
	before := f.now(t)
	open, d := f.create(t, parties(3)), f.create(t, func(d *store.Declaration) { parties(4)(d); d.Retention = "purge" })
	f.commit(t, open, 1)
	f.commit(t, d, 0, 1, 2, 3)
	f.reveal(t, d, 3, 1)
	part := func(d *store.Declaration, p int, revealed bool) store.PartyStatus {
		return store.PartyStatus{Commitment: ptr(store.CommitmentText(ptr(act(d, p).Commitment)[:])), Revealed: revealed}
	}
	wanted := []struct {
		what   string
		deal   *store.Declaration
		want   store.Selection
		parts  []store.PartyStatus
		sealed [][]byte
	}{
		{"nobody", d, store.NoParties, []store.PartyStatus{}, nil},
		{"one that has revealed", d, store.OneParty(3), []store.PartyStatus{part(d, 3, true)}, nil},
		{"one that has not revealed", d, store.OneParty(2), []store.PartyStatus{part(d, 2, false)}, nil},
		{"one that has not committed", open, store.OneParty(2), []store.PartyStatus{{}}, nil},
		{"everyone", d, store.AllParties(4), []store.PartyStatus{part(d, 0, false), part(d, 1, true), part(d, 2, false), part(d, 3, true)}, nil},
		{"everyone of an open deal", open, store.AllParties(3), []store.PartyStatus{{}, part(open, 1, false), {}}, nil},
		{"inputs", d, store.WithInputs, []store.PartyStatus{part(d, 0, false), part(d, 1, true), part(d, 2, false), part(d, 3, true)}, [][]byte{{1}, {3}}},
		{"inputs of an open deal", open, store.WithInputs, []store.PartyStatus{{}, part(open, 1, false), {}}, [][]byte{}},
		{"a deal that does not exist", &store.Declaration{DealID: "d_none"}, store.AllParties(2), nil, nil},
	}
	ids, wants := make([]string, len(wanted)), make([]store.Selection, len(wanted))
	for i, w := range wanted {
		ids[i], wants[i] = w.deal.DealID, w.want
	}
	grouped, errs := f.SnapshotTogether(ids, wants)
	checkAll(t, errs)
	for i, w := range wanted {
		got := grouped[i]
		if w.parts == nil {
			if got != nil {
				t.Errorf("%s: got %+v, want nil", w.what, got)
			}
			continue
		}
		if alone := f.snapshot(t, w.deal, w.want); !reflect.DeepEqual(alone.Parts, w.parts) || !reflect.DeepEqual(alone.Sealed, w.sealed) {
			t.Errorf("%s, alone: got %+v, want parts %+v and inputs %v", w.what, alone, w.parts, w.sealed)
		}
		if !reflect.DeepEqual(got.Parts, w.parts) || !reflect.DeepEqual(got.Sealed, w.sealed) {
			t.Errorf("%s, in a group: got %+v, want parts %+v and inputs %v", w.what, got, w.parts, w.sealed)
		}
		commits, reveals, phase := 4, 2, deal.Revealing
		if w.deal == open {
			commits, reveals, phase = 1, 0, deal.Committing
		}
		if got.Commits != commits || got.Reveals != reveals || got.Phase != phase || (got.LastReveal >= before) != (reveals > 0) || (got.LastReveal == 0) != (reveals == 0) ||
			got.Now < before || got.Now > before+600 || got.NowMilli/1000 != got.Now {
			t.Errorf("%s: got %+v, want %s with %d commitments and %d reveals, and times from %d on", w.what, got, phase, commits, reveals, before)
		}
	}

	e := f.end(t, d, deal.Void)
	now := f.snapshot(t, d, store.WithInputs)
	if now.Phase != deal.Void || !reflect.DeepEqual(now.VoidFlakers, []int{0, 2}) || *now.CertID != *e.CertID || now.Published || now.Result != nil {
		t.Errorf("after the end: got %+v, want VOID with flakers 0 and 2, and certificate %s, not published", now, *e.CertID)
	}
	if !reflect.DeepEqual(now.Sealed, [][]byte{nil, nil}) || !now.Parts[1].Revealed {
		t.Errorf("after a purge: got inputs %v and parts %+v, want two nil inputs and party 1 revealed", now.Sealed, now.Parts)
	}
	if done, err := f.Publish(t.Context(), store.Publication{CertID: *e.CertID, Signature: "s", LeafIndex: 0}); err != nil || !done || !f.current(t, d).Published {
		t.Errorf("Publish = %v, %v; want true and a snapshot that is published", done, err)
	}
}
