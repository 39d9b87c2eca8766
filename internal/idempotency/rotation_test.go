package idempotency_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
)

// rotatable is a bench whose replicas hold two secrets, the older of which is in
// force.
func rotatable(t *testing.T) (b *bench, rotate func()) {
	t.Helper()
	url := servertest.Postgres(t)
	b = newBenchOn(t, url)
	next, err := sealing.New(bytes.Repeat([]byte("n"), 32))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.store.ClaimSecret(t.Context(), b.secret.Fingerprint(), false); err != nil {
		t.Fatal(err)
	}
	b.all = []*sealing.Secret{next, b.secret}
	b.replicas(t, url, b.server.URL()+servertest.PatientRedis)
	return b, func() {
		if done, err := b.store.RotateSecret(t.Context(), b.secret.Fingerprint(), next.Fingerprint()); err != nil || !done {
			t.Errorf("rotate: %v, %v", done, err)
		}
	}
}

// A retry after a rotation of the server secret finds what came before it, at a
// replica that has learned of the rotation and at one that has not.
func TestReplaysOverARotation(t *testing.T) {
	b, rotate := rotatable(t)
	later, atOnce := request("later", "{}"), request("at once", "{}")
	first, second := b.do(t, 0, later, b.later, b.render), b.do(t, 1, atOnce, b.atOnce, b.render)
	rotate()
	if got := b.do(t, 0, request("learns", "{}"), b.atOnce, b.render); got == first {
		t.Errorf("a new call replays %v", got)
	}
	b.forget(t)
	took := b.took(t)
	for replica := range b.guards {
		for range 2 { // from Postgres, and from a copy where there is one
			if got := b.do(t, replica, later, noEffect(t), never(t, "render")); got != first {
				t.Errorf("replica %d replays %v, want %v", replica, got, first)
			}
			if got := b.do(t, replica, atOnce, noEffect(t), never(t, "render")); got != second {
				t.Errorf("replica %d replays %v, want %v", replica, got, second)
			}
		}
		if _, err := b.try(t, replica, request("later", `{"a":1}`), noEffect(t), never(t, "render")); !problem.Is(err, problem.IdempotencyKeyReused) {
			t.Errorf("replica %d, another body: %v", replica, err)
		}
	}
	if n := b.took(t); n != took {
		t.Errorf("%d effects more", n-took)
	}
}

// The answer of a call made before the rotation was lost: it is rendered once, and
// stored beside its record.
func TestALostAnswerOverARotation(t *testing.T) {
	b, rotate := rotatable(t)
	req := request("k", "{}")
	b.do(t, 0, req, b.later, b.render)
	b.exec(t, "UPDATE idempotency SET response = NULL")
	rotate()
	b.do(t, 0, request("learns", "{}"), b.atOnce, b.render)
	b.forget(t)
	rendered := b.do(t, 0, req, noEffect(t), b.render)
	for replica := range b.guards {
		if got := b.do(t, replica, req, noEffect(t), never(t, "render")); got != rendered {
			t.Errorf("replica %d replays %v, want %v", replica, got, rendered)
		}
	}
}

// Twins at two replicas while the secret is rotated, without a lock in Redis: the
// effect takes place once.
func TestTwinsAroundARotation(t *testing.T) {
	b, rotate := rotatable(t)
	b.server.Kill()
	const calls = 12
	answers := make([][]reply, 8)
	var group sync.WaitGroup
	group.Go(rotate)
	for n := range answers {
		answers[n] = make([]reply, calls)
		for i := range calls {
			group.Go(func() {
				req := request(string(rune('a'+n)), "{}")
				var err error
				if answers[n][i], err = idempotency.Do(t.Context(), b.guards[i%2], req, b.atOnce, b.render); err != nil {
					t.Errorf("call %d of %s: %v", i, req.Key, err)
				}
			})
		}
	}
	group.Wait()
	if took := b.took(t); took != len(answers) {
		t.Errorf("%d effects took place for %d keys", took, len(answers))
	}
	for _, all := range answers {
		for i := range all {
			if all[i] != all[0] {
				t.Errorf("call %d was answered %v and call 0 %v", i, all[i], all[0])
			}
		}
	}
}
