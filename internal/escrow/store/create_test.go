package store_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow/store"
)

// If the database refuses one deal of a group, the other deals of the group are created.
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
				d.Title, d.Audience, d.ActedBy = "title of "+d.DealID, "public", "initiator"
			case 2:
				random(d)
				d.Message = "message of\n" + d.DealID
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
					t.Errorf("deal %d with a taken scope: got error %v, want ErrReplayed", i, errs[i])
				}
				inTime = false
			} else if errs[i] != nil || created[i].OK != inTime || created[i].Now < before || created[i].Now > before+600 {
				t.Errorf("deal %d: got %+v, %v; want OK %v and a time from %d on", i, created[i], errs[i], inTime, before)
			}
			got, err := f.Declaration(t.Context(), d.DealID)
			if (err == nil) != inTime || inTime && (len(got.Labels) != len(d.Labels) || !reflect.DeepEqual(got.SeatKeys, d.SeatKeys) || got.Title != d.Title || got.Audience != d.Audience || got.ActedBy != d.ActedBy || got.Message != d.Message || got.CreatedAt != created[i].Now || (got.ChainHash == nil) != (d.ChainHash == nil)) {
				t.Errorf("deal %d: Declaration = %+v, %v; want %+v, stored: %v", i, got, err, d.Declaration, inTime)
			}
			for p, token := range d.TokenHashes {
				id, party, err := f.PartyByToken(t.Context(), token)
				if (err == nil) != inTime || inTime && (id != d.DealID || party != p) {
					t.Errorf("token %d of deal %d: PartyByToken = %s, %d, %v; want %s, %d, stored: %v", p, i, id, party, err, d.DealID, p, inTime)
				}
			}
		}
	}
	createAll(all, -1)
	if found, err := f.FindReplay(t.Context(), fresh.Scope, nil); err != nil || string(found.Response) != "the invite tokens" {
		t.Errorf("the record of a creation: got response %q, %v; want %q", found.Response, err, fresh.Response)
	}
	if _, err := f.FindReplay(t.Context(), late.Scope, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the record of a refused creation: got error %v, want ErrNotFound", err)
	}

	for i := range all {
		all[i] = f.declare(t, nil)
	}
	all[5].Replay = taken
	createAll(all, 5)
}
