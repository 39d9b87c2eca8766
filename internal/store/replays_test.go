package store_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/store"
)

func newReplay() *store.Replay {
	return &store.Replay{Scope: random32(), Body: random32(), Lifetime: 3600}
}

// effect is a write that takes an idempotency record.
type effect struct {
	possible   func(*store.Replay) (bool, error)
	impossible func(*store.Replay) (bool, error) // nil: there is none
	took       func() int                        // how often it took place
}

func effects(t *testing.T, f *fixture) map[string]effect {
	ctx := t.Context()
	key := random32()
	future, past := f.declare(t, nil), f.declare(t, func(d *store.Declaration) { d.CommitDeadline = 1 })
	open, revealing, shapley, cancelled := f.create(t, nil), f.create(t, nil), f.create(t, nil), f.create(t, nil)
	f.commit(t, revealing, 0, 1)
	f.commit(t, shapley, 0, 1)
	create := func(d store.NewDeal) func(*store.Replay) (bool, error) {
		return func(r *store.Replay) (bool, error) {
			d.Replay = r
			created, err := f.CreateDeal(ctx, d)
			return created.OK, err
		}
	}
	commit := func(d *store.Declaration) func(*store.Replay) (bool, error) {
		return func(r *store.Replay) (bool, error) { return isDone(f.Commit(ctx, with(r, act(d, 0)))) }
	}
	reveal := func(d *store.Declaration) func(*store.Replay) (bool, error) {
		return func(r *store.Replay) (bool, error) { return isDone(f.Reveal(ctx, with(r, act(d, 0)))) }
	}
	reject := func(d *store.Declaration) func(*store.Replay) (bool, error) {
		return func(r *store.Replay) (bool, error) {
			return f.Reject(ctx, f.ending(t, d, deal.Void), with(r, act(d, 0)))
		}
	}
	cancel := func(d *store.Declaration) func(*store.Replay) (bool, error) {
		return func(r *store.Replay) (bool, error) { return f.Cancel(ctx, d.DealID, r) }
	}
	rows := func(query string, arg any) func() int { return func() int { return f.count(t, query, arg) } }
	return map[string]effect{
		"key": {func(r *store.Replay) (bool, error) {
			err := f.InsertKey(ctx, key, r)
			return err == nil, err
		}, nil, rows("SELECT count(*) FROM api_keys WHERE key_hash = $1", key)},
		"create": {create(future), create(past), rows("SELECT count(*) FROM parties WHERE deal_id = $1 AND party = 0", future.DealID)},
		"commit": {commit(open), commit(revealing), rows("SELECT count(*) FROM commitments WHERE deal_id = $1", open.DealID)},
		"reveal": {reveal(revealing), reveal(cancelled), rows("SELECT count(*) FROM reveals WHERE deal_id = $1", revealing.DealID)},
		"reject": {reject(shapley), reject(open), rows("SELECT count(*) FROM reveals WHERE deal_id = $1", shapley.DealID)},
		"cancel": {cancel(cancelled), cancel(shapley), rows("SELECT count(*) FROM deals WHERE deal_id = $1 AND phase = 'CANCELLED'", cancelled.DealID)},
	}
}

func with(r *store.Replay, a store.Act) store.Act {
	a.Replay = r
	return a
}

// Effect and record exist together or not at all.
func TestTheRecordComesWithTheEffect(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for what, e := range effects(t, f) {
		t.Run(what, func(t *testing.T) {
			r := newReplay()
			if e.impossible != nil {
				if done, err := e.impossible(r); err != nil || done {
					t.Fatalf("impossible: %v, %v", done, err)
				}
				if _, err := f.FindReplay(ctx, r.Scope, nil); !errors.Is(err, store.ErrNotFound) {
					t.Fatalf("an effect that did not take place has a record: %v", err)
				}
			}
			// A scope that is taken keeps the effect out.
			taken := newReplay()
			check(t, f.InsertKey(ctx, random32(), taken))
			if _, err := e.possible(taken); !errors.Is(err, store.ErrReplayed) {
				t.Fatalf("with a scope that is taken: %v, want ErrReplayed", err)
			}
			if n := e.took(); n != 0 {
				t.Fatalf("with a scope that is taken it took place %d times", n)
			}
			if done, err := e.possible(r); err != nil || !done {
				t.Fatalf("possible: %v, %v", done, err)
			}
			if n := e.took(); n != 1 {
				t.Fatalf("it took place %d times", n)
			}
			found, err := f.FindReplay(ctx, r.Scope, nil)
			if err != nil || !bytes.Equal(found.Body, r.Body) || found.Response != nil {
				t.Fatalf("its record: body %x, response %q, %v", found.Body, found.Response, err)
			}
		})
	}
}

// A party's act that is sent twice with one Idempotency-Key in one group is
// stored once, and so is its record.
func TestTwinsWithOneKeyAreStoredOnce(t *testing.T) {
	f := newFixture(t)
	d, r := f.create(t, nil), newReplay()
	got, errs := f.CommitTogether(with(r, act(d, 0)), with(r, act(d, 0)))
	if errors.Join(errs...) != nil || !got[0].Done || got[1].Done {
		t.Errorf("%+v, %v", got, errs)
	}
	// The key of one call used for another is refused, whichever comes first.
	_, errs = f.CommitTogether(with(newReplay(), act(f.create(t, nil), 0)), with(r, act(d, 1)))
	if errs[0] != nil || !errors.Is(errs[1], store.ErrReplayed) {
		t.Errorf("%v", errs)
	}
}

func TestTheFirstResponseStands(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	r := newReplay()
	if _, err := f.SetResponse(ctx, r.Scope, []byte("x")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a response without a record: %v", err)
	}
	check(t, f.InsertKey(ctx, random32(), r))
	var group sync.WaitGroup
	stands := make([][]byte, 16)
	for i := range stands {
		group.Go(func() {
			var err error
			if stands[i], err = f.SetResponse(ctx, r.Scope, []byte{byte(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	found, err := f.FindReplay(ctx, r.Scope, nil)
	check(t, err)
	stored := found.Response
	for i, one := range stands {
		if !bytes.Equal(one, stored) {
			t.Errorf("writer %d was told %x stands, and %x does", i, one, stored)
		}
	}
	with := newReplay()
	with.Response = []byte("at once")
	check(t, f.InsertKey(ctx, random32(), with))
	if got, err := f.SetResponse(ctx, with.Scope, []byte("late")); err != nil || string(got) != "at once" {
		t.Errorf("a response stored with its effect gives way to %q, %v", got, err)
	}
}

func TestRecordsEnd(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	found := func(r *store.Replay) bool {
		_, err := f.FindReplay(ctx, r.Scope, nil)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	age := func(r *store.Replay) {
		f.exec(t, "UPDATE idempotency SET expires_at = floor(extract(epoch FROM clock_timestamp())) WHERE scope = $1", r.Scope)
	}
	var all []*store.Replay
	var keys [][]byte
	for range 4 {
		r, key := newReplay(), random32()
		check(t, f.InsertKey(ctx, key, r))
		all, keys = append(all, r), append(keys, key)
	}
	// By a key's first use.
	if known, _, err := f.UseKey(ctx, keys[0], 1); err != nil || !known {
		t.Fatal(known, err)
	}
	if found(all[0]) || !found(all[1]) {
		t.Error("a key's first use ends the replay of its own creation and no other")
	}
	if known, _, err := f.UseKey(ctx, random32(), 1); err != nil || known {
		t.Errorf("a key that was never made: %v, %v", known, err)
	}
	// By time; then the scope can be used again, at once or after the sweep.
	age(all[1])
	age(all[2])
	if found(all[1]) {
		t.Error("a record is found in the second in which it ends")
	}
	if err := f.InsertKey(ctx, random32(), all[1]); !errors.Is(err, store.ErrReplayed) {
		t.Errorf("an ended record that is still there: %v, want ErrReplayed", err)
	}
	for _, r := range all[1:] {
		check(t, f.ExpireReplay(ctx, r.Scope))
	}
	if err := f.InsertKey(ctx, random32(), all[1]); err != nil {
		t.Errorf("an expired scope cannot be used again: %v", err)
	}
	if !found(all[3]) {
		t.Error("ExpireReplay took a record whose time is not over")
	}
	age(all[1])
	age(all[3])
	if n, err := f.Sweep(ctx); err != nil || n != 2 {
		t.Errorf("swept %d, %v; want 2", n, err)
	}
	if n := f.count(t, "SELECT count(*) FROM idempotency"); n != 0 {
		t.Errorf("%d records are left", n)
	}
}
