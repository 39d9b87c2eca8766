package escrow_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// rotatable returns a bench whose replicas have a second secret, which `rotate` puts in force.
func rotatable(t *testing.T) (b *bench, rotate func()) {
	t.Helper()
	next, err := sealing.New(bytes.Repeat([]byte("n"), 32))
	check(t, err)
	b = newBench(t, next)
	return b, func() {
		if done, err := b.store.RotateSecret(t.Context(), b.secret.Fingerprint(), next.Fingerprint()); err != nil || !done {
			t.Errorf("RotateSecret = %v, %v; want true", done, err)
		}
	}
}

// Replica 0 knows of the rotation of the server secret, replica 1 does not. If a crash left a
// record without an answer, the answer is rendered once.
func TestReplaysAfterARotation(t *testing.T) {
	b, rotate := rotatable(t)
	later, atOnce, lost := request("later", "{}"), request("at once", "{}"), request("lost", "{}")
	first, second := b.do(t, 0, later, b.later, b.render), b.do(t, 1, atOnce, b.atOnce, b.render)
	b.dies(t, lost, b.later)
	rotate()
	if got := b.do(t, 0, request("replica 0 learns of the rotation", "{}"), b.atOnce, b.render); got == first {
		t.Errorf("a call with a new key replays %v, want a new answer", got)
	}
	rendered := b.do(t, 0, lost, noEffect(t), b.render)
	b.replays(t, "stored later", later, first)
	b.replays(t, "stored at once", atOnce, second)
	b.replays(t, "rendered", lost, rendered)
	for replica := range b.guards {
		if _, err := b.try(t, replica, request("later", `{"a":1}`), noEffect(t), never(t, "render")); !problem.Is(err, problem.IdempotencyKeyReused) {
			t.Errorf("replica %d, another body: got error %v, want IDEMPOTENCY_KEY_REUSED", replica, err)
		}
	}
	b.effects(t, 4)
}

// Concurrent calls with one key at two replicas take effect once, even without a lock in
// Redis and while the server secret is rotated.
func TestConcurrentCallsDuringARotation(t *testing.T) {
	b, rotate := rotatable(t)
	b.server.Kill()
	const calls = 12
	answers := make([][calls]reply, 8)
	var group sync.WaitGroup
	group.Go(rotate)
	for n := range answers {
		for i := range calls {
			group.Go(func() {
				req := request(string(rune('a'+n)), "{}")
				for tries := 1; ; tries++ { // retries on UNAVAILABLE, because the database may just be slow
					var err error
					answers[n][i], err = b.try(t, i%2, req, b.atOnce, b.render)
					if problem.Is(err, problem.Unavailable) && tries < 20 {
						continue
					}
					if err != nil {
						t.Errorf("call %d of %s: got error %v, want none", i, req.Key, err)
					}
					return
				}
			})
		}
	}
	group.Wait()
	b.effects(t, len(answers))
	for _, all := range answers {
		for i := range all {
			if all[i] != all[0] {
				t.Errorf("call %d was answered %v, want %v, as call 0", i, all[i], all[0])
			}
		}
	}
}
