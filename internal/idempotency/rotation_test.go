package idempotency_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
)

// rotatable returns a bench whose replicas also have the next secret.
func rotatable(t *testing.T) (b *bench, rotate func()) {
	t.Helper()
	next, err := sealing.New(bytes.Repeat([]byte("n"), 32))
	check(t, err)
	b = newBench(t, next)
	return b, func() {
		if done, err := b.store.RotateSecret(t.Context(), b.secret.Fingerprint(), next.Fingerprint()); err != nil || !done {
			t.Errorf("rotate: %v, %v", done, err)
		}
	}
}

// A replay after a rotation of the server secret finds a record from before it, at
// a replica that knows of the rotation (0) and at one that does not (1). An answer
// that was lost is rendered once.
func TestReplaysAfterARotation(t *testing.T) {
	b, rotate := rotatable(t)
	later, atOnce, lost := request("later", "{}"), request("at once", "{}"), request("lost", "{}")
	first, second := b.do(t, 0, later, b.later, b.render), b.do(t, 1, atOnce, b.atOnce, b.render)
	b.dies(t, lost, b.later)
	rotate()
	if got := b.do(t, 0, request("replica 0 learns of the rotation", "{}"), b.atOnce, b.render); got == first {
		t.Errorf("a new call replays %v", got)
	}
	rendered := b.do(t, 0, lost, noEffect(t), b.render)
	b.replays(t, "stored later", later, first)
	b.replays(t, "stored at once", atOnce, second)
	b.replays(t, "rendered", lost, rendered)
	for replica := range b.guards {
		if _, err := b.try(t, replica, request("later", `{"a":1}`), noEffect(t), never(t, "render")); !problem.Is(err, problem.IdempotencyKeyReused) {
			t.Errorf("replica %d, another body: %v", replica, err)
		}
	}
	b.effects(t, 4)
}

// Calls with one key at two replicas, without a lock in Redis and while the secret
// is rotated, take effect once.
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
				for tries := 1; ; tries++ { // on a busy machine the database answers late
					var err error
					answers[n][i], err = b.try(t, i%2, req, b.atOnce, b.render)
					if problem.Is(err, problem.Unavailable) && tries < 20 {
						continue
					}
					if err != nil {
						t.Errorf("call %d of %s: %v", i, req.Key, err)
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
				t.Errorf("call %d was answered %v and call 0 %v", i, all[i], all[0])
			}
		}
	}
}
