package store_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

func (f *fixture) rotate(t *testing.T, from, to []byte) {
	t.Helper()
	if done, err := f.RotateSecret(t.Context(), from, to); err != nil || !done {
		t.Fatalf("RotateSecret = %v, %v; want true", done, err)
	}
}

// A call with a server secret that is not in force stores nothing. If it did, other processes
// might be unable to decrypt the input or to find the idempotency record.
func TestWritesUnderAFormerSecretAreRefused(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	old, now := random32(), random32()
	under := func(secret []byte) *store.Replay { r := newReplay(); r.Secret = secret; return r }
	sealed := func(a store.Act, secret []byte) store.Act { a.Secret = secret; return a }
	revealing := func() *store.Declaration {
		d := f.create(t, nil)
		f.commit(t, d, 0, 1)
		return d
	}
	writes := map[string]func(secret []byte) error{
		"key": func(secret []byte) error { return f.InsertKey(ctx, random32(), under(secret)) },
		"create": func(secret []byte) error {
			d := f.declare(t, nil)
			d.Replay = under(secret)
			return second(f.CreateDeal(ctx, d))
		},
		"commit with a seal": func(secret []byte) error {
			a := sealed(act(f.create(t, nil), 0), secret)
			a.Seal = &store.NewSeal{Hash: [32]byte(random32()), Sealed: []byte("sealed"), RoundTime: 1}
			return second(f.Commit(ctx, a))
		},
		"reveal": func(secret []byte) error { return second(f.Reveal(ctx, sealed(act(revealing(), 0), secret))) },
		"reveal with a key": func(secret []byte) error {
			return second(f.Reveal(ctx, with(under(secret), sealed(act(revealing(), 0), now))))
		},
		"reject": func(secret []byte) error {
			d := revealing()
			return second(f.Reject(ctx, f.ending(t, d, deal.Void), sealed(act(d, 0), secret)))
		},
	}
	stored := func() string {
		return fmt.Sprint(f.count(t, "SELECT count(*) FROM reveals"), f.count(t, "SELECT count(*) FROM idempotency"), f.count(t, "SELECT count(*) FROM commitments JOIN seals USING (deal_id, party)"), f.count(t, "SELECT count(*) FROM certificates"))
	}
	check(t, f.ClaimSecret(ctx, old))
	f.rotate(t, old, now)
	for what, write := range writes {
		before := stored()
		if err := write(old); !errors.Is(err, store.ErrSecretReplaced) {
			t.Errorf("%s under the former secret: got error %v, want ErrSecretReplaced", what, err)
		}
		if after := stored(); after != before {
			t.Errorf("%s under the former secret: the tables have %s rows, want %s, as before", what, after, before)
		}
		check(t, write(now))
	}
	state, err := f.ServerSecret(ctx)
	if err != nil || !bytes.Equal(state.Fingerprint, now) || len(state.Former) != 1 || !bytes.Equal(state.Former[0], old) {
		t.Errorf("after the rotation: ServerSecret = %+v, %v; want %x in force and %x as the only former secret", state, err, now, old)
	}
	if done, err := f.RotateSecret(ctx, old, random32()); done || err != nil {
		t.Errorf("RotateSecret from a secret that is not in force = %v, %v; want false", done, err)
	}
}

// Several goroutines call InsertKey with the old secret while the secret is rotated. Calls after
// the rotation are refused and add no idempotency record.
func TestARotationFencesTheFormerSecret(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	old, now := random32(), random32()
	check(t, f.ClaimSecret(ctx, old))
	var group, began sync.WaitGroup
	var stored atomic.Int64
	for range 8 {
		began.Add(1)
		started := sync.OnceFunc(began.Done)
		group.Go(func() {
			defer started()
			for {
				r := newReplay()
				r.Secret = old
				err := f.InsertKey(ctx, random32(), r)
				if err != nil {
					if !errors.Is(err, store.ErrSecretReplaced) {
						t.Errorf("InsertKey: got error %v, want ErrSecretReplaced or none", err)
					}
					return
				}
				stored.Add(1)
				started()
			}
		})
	}
	began.Wait()
	f.rotate(t, old, now)
	atRotation := f.count(t, "SELECT count(*) FROM idempotency")
	group.Wait()
	if after := f.count(t, "SELECT count(*) FROM idempotency"); after != atRotation || int64(after) != stored.Load() {
		t.Errorf("%d records at the end, want %d, as at the rotation, and %d, the number of successful calls", after, atRotation, stored.Load())
	}
}

// InputsToReseal returns each input under a former secret, in batches of bounded size. Reseal does
// not replace an input that has changed since then, and gives up an input without a replacement.
func TestResealInBatches(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	old, now := random32(), random32()
	check(t, f.ClaimSecret(ctx, old))
	const deals = 8
	all := make([]*store.Declaration, deals)
	for i := range all {
		all[i] = f.create(t, nil)
		f.commit(t, all[i], 0, 1)
		if i == deals-1 {
			f.rotate(t, old, now)
		}
		f.reveal(t, all[i], 0)
	}
	f.exec(t, "UPDATE reveals SET sealed = NULL WHERE deal_id = $1", all[0].DealID)
	f.exec(t, "UPDATE reveals SET sealed = repeat('x', 100)::bytea WHERE deal_id = $1", all[1].DealID)
	left := func(want int) {
		t.Helper()
		if r, err := f.Rotation(ctx, 60, 100); err != nil || r.Inputs != want || r.Replays != 0 {
			t.Errorf("Rotation = %+v, %v; want %d inputs left and 0 replays", r, err, want)
		}
	}
	left(deals - 2)
	if done, err := f.ForgetSecrets(ctx, now); done || err != nil {
		t.Errorf("ForgetSecrets with inputs left = %v, %v; want false", done, err)
	}
	purge, lost := true, true
	for seen := 0; ; {
		inputs, err := f.InputsToReseal(ctx, 3, 50)
		check(t, err)
		if len(inputs) == 0 {
			break
		}
		fresh := make([][]byte, len(inputs))
		for i, in := range inputs {
			if len(in.Sealed) == 100 && i < len(inputs)-1 {
				t.Errorf("a batch with a bound of 50 bytes has %d inputs after one of 100 bytes, want 0", len(inputs)-1-i)
			}
			if fresh[i] = []byte("fresh"); lost {
				fresh[i], lost = nil, false
			} else if purge {
				f.exec(t, "UPDATE reveals SET sealed = NULL WHERE deal_id = $1", in.DealID)
				purge = false
			}
		}
		check(t, f.Reseal(ctx, random32(), inputs, fresh)) // not in force: does nothing
		left(deals - 2 - seen - f.count(t, "SELECT count(*) - 1 FROM reveals WHERE sealed IS NULL"))
		check(t, f.Reseal(ctx, now, inputs, fresh))
		seen = f.count(t, "SELECT count(*) FROM reveals WHERE sealed = 'fresh' OR sealed IS NOT NULL AND secret IS NULL")
	}
	for what, want := range map[string]int{"sealed = 'fresh'": deals - 4, "sealed IS NULL": 2, "sealed IS NOT NULL AND secret IS NULL": 1, "secret IS NOT NULL AND sealed <> 'fresh'": 1} {
		if n := f.count(t, "SELECT count(*) FROM reveals WHERE "+what); n != want {
			t.Errorf("%d inputs with %s, want %d", n, what, want)
		}
	}
	if done, err := f.ForgetSecrets(ctx, now); !done || err != nil {
		t.Errorf("ForgetSecrets after the last batch = %v, %v; want true", done, err)
	}
	if state, err := f.ServerSecret(ctx); err != nil || len(state.Former) != 0 {
		t.Errorf("ServerSecret = %+v, %v; want no former secrets", state, err)
	}
}

// LoseDeals ends only the deals that have an input.
func TestLoseDeals(t *testing.T) {
	f := newFixture(t)
	open, committed, revealing, drawing, purged := f.create(t, nil), f.create(t, nil), f.create(t, nil), f.create(t, random), f.create(t, func(d *store.Declaration) { d.Retention = "purge" })
	for _, d := range []*store.Declaration{committed, revealing, drawing, purged} {
		f.commit(t, d, 0, 1)
	}
	f.reveal(t, revealing, 0)
	f.reveal(t, purged, 0)
	f.reveal(t, drawing, 0, 1)
	f.end(t, f.create(t, nil), deal.Void)
	check(t, f.LoseDeals(context.WithoutCancel(t.Context())))
	for d, want := range map[*store.Declaration]deal.State{open: deal.Committing, committed: deal.Revealing, revealing: deal.Expired, drawing: deal.Expired, purged: deal.Expired} {
		if got := f.current(t, d).Phase; got != want {
			t.Errorf("after LoseDeals deal %s is %s, want %s", d.DealID, got, want)
		}
	}
	if n := f.count(t, "SELECT count(*) FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL", purged.DealID); n != 0 {
		t.Errorf("%d inputs of a deal with retention purge are left, want 0", n)
	}
	if deals, certificates, err := f.Live(t.Context()); deals != 0 || certificates != 1 || err != nil {
		t.Errorf("after LoseDeals %d deals and %d certificates may need the lost secret, %v; want 0 and 1", deals, certificates, err)
	}
}

// A is rotated to B, and B is lost while inputs under A are left. A stays a former secret, because the
// file holds A, and the rotation continues.
func TestReplacedSecretKeepsTheFormerSecretsThatAreHeld(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	a, b, lost, next := []byte("a"), []byte("b"), []byte("lost"), []byte("next")
	check(t, f.ClaimSecret(ctx, lost))
	f.rotate(t, lost, a)
	d := f.create(t, nil)
	f.commit(t, d, 0, 1)
	f.reveal(t, d, 0)
	f.rotate(t, a, b)
	check(t, f.ReplaceSecret(ctx, next, [][]byte{next, a}))
	state, err := f.ServerSecret(ctx)
	if err != nil || string(state.Fingerprint) != "next" || len(state.Former) != 1 || string(state.Former[0]) != "a" {
		t.Errorf("ServerSecret = %+v, %v; want next in force and only a as a former secret", state, err)
	}
	if inputs, err := f.InputsToReseal(ctx, 10, 1000); err != nil || len(inputs) != 1 {
		t.Errorf("InputsToReseal = %v, %v; want the input under a", inputs, err)
	}
	check(t, f.ClaimSecret(ctx, b)) // does nothing
	check(t, f.ReplaceSecret(ctx, a, [][]byte{a}))
	if state, err = f.ServerSecret(ctx); err != nil || string(state.Fingerprint) != "a" || len(state.Former) != 0 {
		t.Errorf("ServerSecret = %+v, %v; want a in force and no former secret", state, err)
	}
}

// To rotate the database password, the runbook secrets.md creates a second role that acts as
// the owner of the tables. The second role can write, rotate the server secret and list the
// clients.
func TestASecondDatabaseUser(t *testing.T) {
	f := newFixture(t)
	owner, second := "owner_"+strings.ToLower(rand.Text()), "second_"+strings.ToLower(rand.Text())
	for _, statement := range []string{
		"CREATE ROLE " + owner + " LOGIN PASSWORD 'one'",
		"GRANT ALL ON SCHEMA public TO " + owner,
		"DO $$ DECLARE name text; BEGIN FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP EXECUTE format('ALTER TABLE public.%I OWNER TO " + owner + "', name); END LOOP; END $$",
		"CREATE ROLE " + second + " LOGIN PASSWORD 'two' IN ROLE " + owner,
		"ALTER ROLE " + second + " SET role TO " + owner,
	} {
		f.exec(t, statement)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, statement := range []string{"REASSIGN OWNED BY " + owner + " TO CURRENT_USER", "DROP OWNED BY " + owner, "DROP ROLE " + second, "DROP ROLE " + owner} {
			if _, err := f.sql.Exec(ctx, statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
		}
	})
	as := func(role, password, application string) *store.Store {
		own, err := url.Parse(f.url)
		check(t, err)
		own.User = url.UserPassword(role, password)
		query := own.Query()
		query.Set("application_name", application)
		own.RawQuery = query.Encode()
		s, err := store.Open(t.Context(), own.String(), 2)
		check(t, err)
		return s
	}
	first := as(owner, "one", "fairpact/first")
	defer first.Close()
	check(t, first.ClaimSecret(t.Context(), []byte("old")))
	other := as(second, "two", "fairpact/second")
	defer other.Close()
	check(t, other.InsertKey(t.Context(), random32(), newReplay()))
	if done, err := other.RotateSecret(t.Context(), []byte("old"), []byte("new")); err != nil || !done {
		t.Errorf("RotateSecret by the second role = %v, %v; want true", done, err)
	}
	for who, s := range map[string]*store.Store{"first": first, "second": other} {
		names, err := s.Applications(t.Context())
		if err != nil || !slices.Contains(names, "fairpact/first") || !slices.Contains(names, "fairpact/second") {
			t.Errorf("Applications by the %s role = %v, %v; want fairpact/first and fairpact/second", who, names, err)
		}
	}
	f.exec(t, "ALTER ROLE "+owner+" NOLOGIN")
	_, err := other.Sweep(t.Context())
	check(t, err)
}
