package store_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/fairpact/fairpact/internal/store"
)

// One statement creates many deals, and decides and answers each separately.
func TestCreationsOfOneGroup(t *testing.T) {
	f := newFixture(t)
	taken, fresh := newReplay(), newReplay()
	fresh.Response = []byte("the invite tokens")
	check(t, f.InsertKey(t.Context(), random32(), taken))
	const n = 12
	all := make([]store.NewDeal, n)
	for i := range all {
		all[i] = f.declare(t, func(d *store.Declaration) {
			parties(2 + i)(d)
			switch i % 4 {
			case 1:
				d.CommitDeadline = 1_700_000_000
			case 3:
				d.SeatKeys = make([]*string, len(d.Labels))
				d.SeatKeys[1] = ptr("ed25519:" + d.DealID)
			case 2:
				random(d)
			}
		})
	}
	late := newReplay()
	all[1].Replay, all[2].Replay = late, fresh
	before := f.now(t)
	createAll := func(all []store.NewDeal, refused int) {
		t.Helper()
		created, errs := f.CreateTogether(all...)
		for i, d := range all {
			inTime := d.CommitDeadline != 1_700_000_000
			if i == refused {
				if !errors.Is(errs[i], store.ErrReplayed) {
					t.Errorf("deal %d with a scope that is taken: %v", i, errs[i])
				}
				inTime = false
			} else if errs[i] != nil || created[i].OK != inTime || created[i].Now < before || created[i].Now > before+600 {
				t.Errorf("deal %d: %+v, %v; want OK %v", i, created[i], errs[i], inTime)
			}
			got, err := f.Declaration(t.Context(), d.DealID)
			if (err == nil) != inTime || inTime && (len(got.Labels) != len(d.Labels) || !reflect.DeepEqual(got.SeatKeys, d.SeatKeys) || got.CreatedAt != created[i].Now || (got.ChainHash == nil) != (d.ChainHash == nil)) {
				t.Errorf("deal %d reads back as %+v, %v", i, got, err)
			}
			for p, token := range d.TokenHashes {
				id, party, err := f.PartyByToken(t.Context(), token)
				if (err == nil) != inTime || inTime && (id != d.DealID || party != p) {
					t.Errorf("token %d of deal %d: %s %d, %v", p, i, id, party, err)
				}
			}
		}
	}
	createAll(all, -1)
	if found, err := f.FindReplay(t.Context(), fresh.Scope, nil); err != nil || string(found.Response) != "the invite tokens" {
		t.Errorf("the record of a creation: %q, %v", found.Response, err)
	}
	if _, err := f.FindReplay(t.Context(), late.Scope, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a refused creation has a record: %v", err)
	}

	// A replayed key fails its own creation and no other.
	for i := range all {
		all[i] = f.declare(t, nil)
	}
	all[5].Replay = taken
	createAll(all, 5)
}
