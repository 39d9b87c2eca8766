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

// effects are all writes that take an idempotency record. Each is given a deal
// that is ready for it and one that is not.
func effects(t *testing.T, b *bench) map[string]struct {
	possible   func(*store.Replay) (bool, error)
	impossible func(*store.Replay) (bool, error)
	took       func() int // how often it took place
} {
	ctx := t.Context()
	type effect = struct {
		possible   func(*store.Replay) (bool, error)
		impossible func(*store.Replay) (bool, error)
		took       func() int
	}
	key := random32()
	future, past := b.declared(t, nil), b.declared(t, func(d *store.Static) { d.CommitDeadline = 1 })
	create := func(d *store.Static) func(*store.Replay) (bool, error) {
		return func(r *store.Replay) (bool, error) {
			_, ok, err := b.CreateDeal(ctx, d, [][]byte{random32(), random32()}, r)
			return ok, err
		}
	}
	open, revealing, shapley, cancelled := b.created(t, nil), b.created(t, nil), b.created(t, nil), b.created(t, nil)
	b.commit(t, revealing, 0, 1)
	b.commit(t, shapley, 0, 1)
	commit := func(d *store.Static) func(*store.Replay) (bool, error) {
		return func(r *store.Replay) (bool, error) { return b.Commit(ctx, d.DealID, 0, [32]byte{}, r) }
	}
	reveal := func(d *store.Static) func(*store.Replay) (bool, error) {
		return func(r *store.Replay) (bool, error) { return b.Reveal(ctx, d.DealID, 0, []byte("x"), r) }
	}
	reject := func(d *store.Static) func(*store.Replay) (bool, error) {
		return func(r *store.Replay) (bool, error) {
			return b.Reject(ctx, b.ending(t, d, deal.Void), 0, []byte("no"), r)
		}
	}
	cancel := func(d *store.Static) func(*store.Replay) (bool, error) {
		return func(r *store.Replay) (bool, error) { return b.Cancel(ctx, d.DealID, r) }
	}
	rows := func(query string, arg any) func() int {
		return func() int { return b.count(t, query, arg) }
	}
	return map[string]effect{
		"key": {func(r *store.Replay) (bool, error) {
			err := b.InsertKey(ctx, key, r)
			return err == nil, err
		}, nil, rows("SELECT count(*) FROM api_keys WHERE key_hash = $1", key)},
		"create": {create(future), create(past), rows("SELECT count(*) FROM parties WHERE deal_id = $1 AND party = 0", future.DealID)},
		"commit": {commit(open), commit(revealing), rows("SELECT count(*) FROM commitments WHERE deal_id = $1", open.DealID)},
		"reveal": {reveal(revealing), reveal(cancelled), rows("SELECT count(*) FROM reveals WHERE deal_id = $1", revealing.DealID)},
		"reject": {reject(shapley), reject(open), rows("SELECT count(*) FROM reveals WHERE deal_id = $1", shapley.DealID)},
		"cancel": {cancel(cancelled), cancel(shapley), rows("SELECT count(*) FROM deals WHERE deal_id = $1 AND phase = 'CANCELLED'", cancelled.DealID)},
	}
}

// Effect and record exist together or not at all.
func TestTheRecordComesWithTheEffect(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for what, e := range effects(t, b) {
		t.Run(what, func(t *testing.T) {
			r := newReplay()
			if e.impossible != nil {
				if done, err := e.impossible(r); err != nil || done {
					t.Fatalf("impossible: %v, %v", done, err)
				}
				if _, _, err := b.FindReplay(ctx, r.Scope); !errors.Is(err, store.ErrNotFound) {
					t.Fatalf("an effect that did not take place has a record: %v", err)
				}
			}
			// A scope that is taken keeps the effect out.
			taken := newReplay()
			if err := b.InsertKey(ctx, random32(), taken); err != nil {
				t.Fatal(err)
			}
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
			body, response, err := b.FindReplay(ctx, r.Scope)
			if err != nil || !bytes.Equal(body, r.Body) || response != nil {
				t.Fatalf("its record: body %x, response %q, %v", body, response, err)
			}
		})
	}
}

// A replayed key among the inserts that share a transaction spoils its own
// insert and no other.
func TestAReplayedKeySpoilsNoOther(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	taken := newReplay()
	if err := b.InsertKey(ctx, random32(), taken); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		var group sync.WaitGroup
		deals := make([]*store.Static, 40)
		for i := range deals {
			deals[i] = b.created(t, nil)
		}
		for i, d := range deals {
			r := newReplay()
			if i%10 == 3 {
				r = taken
			}
			group.Go(func() {
				done, err := b.Commit(ctx, d.DealID, 0, [32]byte{}, r)
				if r == taken && !errors.Is(err, store.ErrReplayed) || r != taken && (err != nil || !done) {
					t.Errorf("insert %d: %v, %v", i, done, err)
				}
			})
		}
		group.Wait()
		for i, d := range deals {
			want := 1
			if i%10 == 3 {
				want = 0
			}
			if n := b.count(t, "SELECT count(*) FROM commitments WHERE deal_id = $1", d.DealID); n != want {
				t.Errorf("insert %d left %d commitments, want %d", i, n, want)
			}
		}
	}
}

func TestTheFirstResponseStands(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	r := newReplay()
	if _, err := b.SetResponse(ctx, r.Scope, []byte("x")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a response without a record: %v", err)
	}
	if err := b.InsertKey(ctx, random32(), r); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	stands := make([][]byte, 16)
	for i := range stands {
		group.Go(func() {
			var err error
			if stands[i], err = b.SetResponse(ctx, r.Scope, []byte{byte(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	_, stored, err := b.FindReplay(ctx, r.Scope)
	if err != nil {
		t.Fatal(err)
	}
	for i, one := range stands {
		if !bytes.Equal(one, stored) {
			t.Errorf("writer %d was told %x stands, and %x does", i, one, stored)
		}
	}
	with := newReplay()
	with.Response = []byte("at once")
	if err := b.InsertKey(ctx, random32(), with); err != nil {
		t.Fatal(err)
	}
	if got, err := b.SetResponse(ctx, with.Scope, []byte("late")); err != nil || string(got) != "at once" {
		t.Errorf("a response stored with its effect gives way to %q, %v", got, err)
	}
}

func TestRecordsEnd(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	found := func(r *store.Replay) bool {
		_, _, err := b.FindReplay(ctx, r.Scope)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	age := func(r *store.Replay) {
		b.exec(t, "UPDATE idempotency SET expires_at = floor(extract(epoch FROM clock_timestamp())) WHERE scope = $1", r.Scope)
	}
	var all []*store.Replay
	var keys [][]byte
	for range 4 {
		r, key := newReplay(), random32()
		if err := b.InsertKey(ctx, key, r); err != nil {
			t.Fatal(err)
		}
		all, keys = append(all, r), append(keys, key)
	}
	// By a key's first use.
	if known, err := b.UseKey(ctx, keys[0]); err != nil || !known {
		t.Fatal(known, err)
	}
	if found(all[0]) || !found(all[1]) {
		t.Error("a key's first use ends the replay of its own creation and no other")
	}
	if known, err := b.UseKey(ctx, random32()); err != nil || known {
		t.Errorf("a key that was never made: %v, %v", known, err)
	}
	// By time; then the scope can be used anew, at once or after the sweep.
	age(all[1])
	age(all[2])
	if found(all[1]) {
		t.Error("a record is found in the second in which it ends")
	}
	if err := b.InsertKey(ctx, random32(), all[1]); !errors.Is(err, store.ErrReplayed) {
		t.Errorf("an ended record that is still there: %v, want ErrReplayed", err)
	}
	for _, r := range all[1:] {
		if err := b.ExpireReplay(ctx, r.Scope); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.InsertKey(ctx, random32(), all[1]); err != nil {
		t.Errorf("an expired scope cannot be used anew: %v", err)
	}
	if !found(all[3]) {
		t.Error("ExpireReplay took a record whose time is not over")
	}
	age(all[1])
	age(all[3])
	if n, err := b.Sweep(ctx); err != nil || n != 2 {
		t.Errorf("swept %d, %v; want 2", n, err)
	}
	if n := b.count(t, "SELECT count(*) FROM idempotency"); n != 0 {
		t.Errorf("%d records are left", n)
	}
}
