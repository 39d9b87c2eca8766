package store_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

func newReplay() *store.Replay {
	return &store.Replay{Scope: random32(), Body: random32(), Lifetime: 3600}
}

func with(r *store.Replay, a store.Act) store.Act {
	a.Replay = r
	return a
}

func TestTheRecordIsStoredWithItsEffect(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	key := random32()
	future, past := f.declare(t, nil), f.declare(t, func(d *store.Declaration) { d.CommitDeadline = 1 })
	open, revealing, shapley, cancelled := f.create(t, nil), f.create(t, nil), f.create(t, nil), f.create(t, nil)
	f.commit(t, revealing, 0, 1)
	f.commit(t, shapley, 0, 1)
	type write func(*store.Replay) (bool, error)
	create := func(d store.NewDeal) write {
		return func(r *store.Replay) (bool, error) {
			d.Replay = r
			created, err := f.CreateDeal(ctx, d)
			return created.OK, err
		}
	}
	commit := func(d *store.Declaration) write {
		return func(r *store.Replay) (bool, error) { return isDone(f.Commit(ctx, with(r, act(d, 0)))) }
	}
	reveal := func(d *store.Declaration) write {
		return func(r *store.Replay) (bool, error) { return isDone(f.Reveal(ctx, with(r, act(d, 0)))) }
	}
	reject := func(d *store.Declaration) write {
		return func(r *store.Replay) (bool, error) {
			return f.Reject(ctx, f.ending(t, d, deal.Void), with(r, act(d, 0)))
		}
	}
	cancel := func(d *store.Declaration) write {
		return func(r *store.Replay) (bool, error) { return f.Cancel(ctx, d.DealID, r) }
	}
	insertKey := func(r *store.Replay) (bool, error) {
		err := f.InsertKey(ctx, key, r)
		return err == nil, err
	}
	for what, row := range map[string]struct {
		possible, impossible write // `impossible` is a call that the store refuses; nil if there is none
		rows                 string
		id                   any
	}{
		"key":    {insertKey, nil, "api_keys WHERE key_hash = $1", key},
		"create": {create(future), create(past), "parties WHERE deal_id = $1 AND party = 0", future.DealID},
		"commit": {commit(open), commit(revealing), "commitments WHERE deal_id = $1", open.DealID},
		"reveal": {reveal(revealing), reveal(cancelled), "reveals WHERE deal_id = $1", revealing.DealID},
		"reject": {reject(shapley), reject(open), "reveals WHERE deal_id = $1", shapley.DealID},
		"cancel": {cancel(cancelled), cancel(shapley), "deals WHERE deal_id = $1 AND phase = 'CANCELLED'", cancelled.DealID},
	} {
		t.Run(what, func(t *testing.T) {
			r := newReplay()
			if row.impossible != nil {
				did(t, "impossible", false)(row.impossible(r))
				if _, err := f.FindReplay(ctx, r.Scope, nil); !errors.Is(err, store.ErrNotFound) {
					t.Fatalf("the record of an effect that did not take place: got error %v, want ErrNotFound", err)
				}
			}
			taken := newReplay()
			check(t, f.InsertKey(ctx, random32(), taken))
			if _, err := row.possible(taken); !errors.Is(err, store.ErrReplayed) {
				t.Fatalf("effect with a taken scope: got error %v, want ErrReplayed", err)
			}
			if n := f.count(t, "SELECT count(*) FROM "+row.rows, row.id); n != 0 {
				t.Fatalf("the effect with a taken scope stored %d rows, want 0", n)
			}
			did(t, "possible", true)(row.possible(r))
			if n := f.count(t, "SELECT count(*) FROM "+row.rows, row.id); n != 1 {
				t.Fatalf("the effect stored %d rows, want 1", n)
			}
			found, err := f.FindReplay(ctx, r.Scope, nil)
			if err != nil || !bytes.Equal(found.Body, r.Body) || found.Response != nil {
				t.Fatalf("the record of the effect: got body %x, response %q, %v; want body %x and no response", found.Body, found.Response, err, r.Body)
			}
		})
	}
}

func TestTheFirstResponseStands(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	later, atOnce := newReplay(), newReplay()
	if _, err := f.SetResponse(ctx, later.Scope, []byte("x")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("SetResponse without a record: got error %v, want ErrNotFound", err)
	}
	atOnce.Response = []byte("first")
	for _, r := range []*store.Replay{later, atOnce} {
		check(t, f.InsertKey(ctx, random32(), r))
		for _, response := range []string{"first", "second"} {
			if stored, err := f.SetResponse(ctx, r.Scope, []byte(response)); err != nil || string(stored) != "first" {
				t.Errorf("SetResponse(%s) = %q, %v; want %q", response, stored, err, "first")
			}
		}
		if found, err := f.FindReplay(ctx, r.Scope, nil); err != nil || string(found.Response) != "first" {
			t.Errorf("FindReplay: got response %q, %v; want %q", found.Response, err, "first")
		}
	}
}

func TestRecordsExpire(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	found := func(r *store.Replay) bool {
		_, err := f.FindReplay(ctx, r.Scope, nil)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	expire := func(r *store.Replay) {
		f.exec(t, "UPDATE idempotency SET expires_at = floor(extract(epoch FROM clock_timestamp())) WHERE scope = $1", r.Scope)
	}
	var all []*store.Replay
	var keys [][]byte
	for range 4 {
		r, key := newReplay(), random32()
		check(t, f.InsertKey(ctx, key, r))
		all, keys = append(all, r), append(keys, key)
	}
	if known, _, err := f.UseKey(ctx, keys[0], 1); err != nil || !known {
		t.Fatalf("UseKey of a stored key = %v, %v; want true", known, err)
	}
	check(t, f.EndKeyReplay(ctx, keys[0]))
	if found(all[0]) || !found(all[1]) {
		t.Errorf("after the first use of key 0: records 0 and 1 found: %v, %v; want false, true", found(all[0]), found(all[1]))
	}
	if known, _, err := f.UseKey(ctx, random32(), 1); err != nil || known {
		t.Errorf("UseKey of an unknown key = %v, %v; want false", known, err)
	}
	// Anybody can send unknown keys, so a look-up writes nothing.
	f.exec(t, "BEGIN READ ONLY")
	f.exec(t, statement(t, "use_key"), [][]byte{random32()}, []int{1})
	f.exec(t, "COMMIT")
	expire(all[1])
	expire(all[2])
	if found(all[1]) {
		t.Error("a record is found in the second in which it expires, want ErrNotFound")
	}
	if err := f.InsertKey(ctx, random32(), all[1]); !errors.Is(err, store.ErrReplayed) {
		t.Errorf("effect with the scope of an expired record that is not deleted: got error %v, want ErrReplayed", err)
	}
	for _, r := range all[1:] {
		check(t, f.ExpireReplay(ctx, r.Scope))
	}
	if err := f.InsertKey(ctx, random32(), all[1]); err != nil {
		t.Errorf("effect with the scope of a deleted record: %v, want no error", err)
	}
	if !found(all[3]) {
		t.Error("ExpireReplay deleted a record that has not expired, want it kept")
	}
	expire(all[1])
	expire(all[3])
	if n, err := f.Sweep(ctx); err != nil || n != 2 {
		t.Errorf("Sweep = %d, %v; want 2", n, err)
	}
	if n := f.count(t, "SELECT count(*) FROM idempotency"); n != 0 {
		t.Errorf("Sweep left %d records, want 0", n)
	}
}
