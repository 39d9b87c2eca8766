package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/redis"
)

// Without the lock in Redis, two calls with the same Idempotency-Key may run in one statement.
// The second idempotency record makes the statement roll back. Nevertheless the two calls
// create one deal and get the same answer, and the other calls in the statement succeed.
func TestOneKeyTwiceInOneGroup(t *testing.T) {
	f := newFixture(t)
	secret, err := sealing.New(make([]byte, 32))
	check(t, err)
	check(t, f.ClaimSecret(t.Context(), secret.Fingerprint()))
	secrets, err := sealing.NewSecrets(secret)
	check(t, err)
	secrets.Use(secret)
	none, err := redis.Open("redis://127.0.0.1:1/0")
	check(t, err)
	t.Cleanup(func() { _ = none.Close() })
	guard := escrow.NewGuard(f.Store, none, secrets)

	type creation struct {
		store.NewDeal
		done chan error
	}
	creations := make(chan creation)
	type answered struct {
		key, id string
		err     error
	}
	answers := make(chan answered)
	keys := []string{"a", "twin", "twin", "b"}
	for _, key := range keys {
		d := f.declare(t, nil)
		go func() {
			var id string
			rec, err := guard.Begin(t.Context(), escrow.KeyedCall{Key: key, Caller: "fp_caller", Method: "POST", Path: "/v1/deals", Lifetime: time.Hour})
			for runs := 0; err == nil && !rec.Answered; runs++ {
				switch d.Replay, err = rec.ReplayWith(d.DealID); {
				case runs > 0:
					err = errors.New("the effect runs again")
				case err == nil:
					done := make(chan error)
					creations <- creation{d, done}
					err = <-done
				}
				id = d.DealID
				err = rec.Keep(t.Context(), id, err)
			}
			if err == nil {
				err = rec.Answer(&id)
				rec.End()
			}
			answers <- answered{key, id, err}
		}()
	}
	var group []creation
	var deals []store.NewDeal
	for range keys {
		group = append(group, <-creations)
		deals = append(deals, group[len(group)-1].NewDeal)
	}
	_, errs := f.CreateTogether(deals...)
	for i, one := range group {
		one.done <- errs[i]
	}

	ids := map[string]string{}
	for range keys {
		got := <-answers
		if got.err != nil {
			t.Fatalf("key %s: %v", got.key, got.err)
		}
		if first, again := ids[got.key]; again && first != got.id {
			t.Errorf("key %s is answered %s and %s", got.key, first, got.id)
		}
		ids[got.key] = got.id
	}
	for key, id := range ids {
		if n := f.count(t, "SELECT count(*) FROM deals WHERE deal_id = $1", id); n != 1 {
			t.Errorf("key %s is answered %s, of which there are %d", key, id, n)
		}
	}
	if n := f.count(t, "SELECT count(*) FROM deals"); n != len(ids) {
		t.Errorf("%d deals, want %d", n, len(ids))
	}
}
