package store_test

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// A snapshot has only what its Selection asks for, whether its call runs alone or in one
// statement with calls for other deals.
func TestSnapshotHoldsTheWantedParts(t *testing.T) {
	f := newFixture(t)
	before := f.now(t)
	open, d := f.create(t, parties(3)), f.create(t, func(d *store.Declaration) { parties(4)(d); d.Retention = "purge" })
	f.commit(t, open, 1)
	f.commit(t, d, 0, 1, 2, 3)
	f.reveal(t, d, 3, 1)
	status := func(d *store.Declaration, p int, revealed bool) store.PartyStatus {
		return store.PartyStatus{Commitment: ptr(store.CommitmentText(ptr(act(d, p).Commitment)[:])), Revealed: revealed}
	}
	tests := []struct {
		what      string
		deal      *store.Declaration
		selection store.Selection
		parts     []store.PartyStatus
		sealed    [][]byte
	}{
		{"no party", d, store.NoParties, []store.PartyStatus{}, nil},
		{"one that has revealed", d, store.OneParty(3), []store.PartyStatus{status(d, 3, true)}, nil},
		{"one that has not revealed", d, store.OneParty(2), []store.PartyStatus{status(d, 2, false)}, nil},
		{"one that has not committed", open, store.OneParty(2), []store.PartyStatus{{}}, nil},
		{"all parties", d, store.AllParties(4), []store.PartyStatus{status(d, 0, false), status(d, 1, true), status(d, 2, false), status(d, 3, true)}, nil},
		{"all parties of an open deal", open, store.AllParties(3), []store.PartyStatus{{}, status(open, 1, false), {}}, nil},
		{"inputs", d, store.WithInputs(4), []store.PartyStatus{status(d, 0, false), status(d, 1, true), status(d, 2, false), status(d, 3, true)}, [][]byte{{1}, {3}}},
		{"inputs of an open deal", open, store.WithInputs(3), []store.PartyStatus{{}, status(open, 1, false), {}}, [][]byte{}},
		{"a deal that does not exist", &store.Declaration{DealID: "d_none"}, store.AllParties(2), nil, nil},
	}
	ids, selections := make([]string, len(tests)), make([]store.Selection, len(tests))
	for i, test := range tests {
		ids[i], selections[i] = test.deal.DealID, test.selection
	}
	grouped, errs := f.SnapshotTogether(ids, selections)
	checkAll(t, errs)
	for i, test := range tests {
		got := grouped[i]
		if test.parts == nil {
			if got != nil {
				t.Errorf("%s: got %+v, want nil", test.what, got)
			}
			continue
		}
		if alone := f.snapshot(t, test.deal, test.selection); !reflect.DeepEqual(alone.Parts, test.parts) || !reflect.DeepEqual(alone.Sealed, test.sealed) {
			t.Errorf("%s, alone: got %+v, want parts %+v and inputs %v", test.what, alone, test.parts, test.sealed)
		}
		if !reflect.DeepEqual(got.Parts, test.parts) || !reflect.DeepEqual(got.Sealed, test.sealed) {
			t.Errorf("%s, in a group: got %+v, want parts %+v and inputs %v", test.what, got, test.parts, test.sealed)
		}
		commits, reveals, phase := 4, 2, deal.Revealing
		if test.deal == open {
			commits, reveals, phase = 1, 0, deal.Committing
		}
		if got.Commits != commits || got.Reveals != reveals || got.Phase != phase || (got.LastReveal >= before) != (reveals > 0) || (got.LastReveal == 0) != (reveals == 0) ||
			got.Now < before || got.Now > before+600 || got.NowMilli/1000 != got.Now {
			t.Errorf("%s: got %+v, want %s with %d commitments and %d reveals, and times from %d on", test.what, got, phase, commits, reveals, before)
		}
	}

	e := f.end(t, d, deal.Void)
	now := f.snapshot(t, d, store.WithInputs(4))
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

// A large result is read only by a call that has a ticket for it, and not in the statements of small reads.
func TestLargeResultsAreLargeReads(t *testing.T) {
	f := newFixture(t)
	d := f.create(t, nil)
	result := []byte(`"` + strings.Repeat("x", 200<<10) + `"`)
	f.exec(t, "UPDATE deals SET phase = 'COMPUTED', result = $2 WHERE deal_id = $1", d.DealID, result)
	p, err := budget.NewWorker()
	check(t, err)
	ctx, call := p.Begin(t.Context(), "reader")
	defer call.End()
	if now, err := f.Snapshot(ctx, d.DealID, store.NoParties); err != nil || !bytes.Equal(now.Result, result) {
		t.Fatalf("the snapshot has a result of %d bytes (%v), want %d", len(now.Result), err, len(result))
	}
	if _, n := p.Held(); n < int64(len(result)) {
		t.Errorf("the call holds %d bytes for a result of %d", n, len(result))
	}
	if all, _ := f.SnapshotTogether([]string{d.DealID}, []store.Selection{store.NoParties}); all[0].Result != nil {
		t.Error("a statement of small reads returns a large result")
	}
}

// To add up the lengths of many inputs takes long, so it is a large read although its answer is small.
func TestLengthOfManyInputsWaitsForTheLargeReads(t *testing.T) {
	f := newFixture(t)
	d := f.create(t, nil)
	p, err := budget.NewWorker()
	check(t, err)
	_, other := p.Begin(t.Context(), "other")
	defer other.End()
	done, err := other.One(t.Context(), budget.LargeRead)
	check(t, err)
	ctx, call := p.Begin(t.Context(), "reader")
	defer call.End()
	if _, err := f.Snapshot(ctx, d.DealID, store.OnlyInputs(2)); err != nil {
		t.Errorf("few inputs beside a large read: %v", err)
	}
	waiting, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := f.Snapshot(waiting, d.DealID, store.OnlyInputs(10_000)); !problem.Is(err, problem.Overloaded) {
		t.Errorf("many inputs beside a large read: %v, want it to wait", err)
	}
	done()
	if _, err := f.Snapshot(ctx, d.DealID, store.OnlyInputs(10_000)); err != nil {
		t.Errorf("many inputs after the large read: %v", err)
	}
}
