package escrow_test

import (
	"context"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

func TestASecondCallWaitsForTheFirst(t *testing.T) {
	b := newBench(t)
	running, finish := make(chan struct{}), make(chan struct{})
	answers := make(chan reply, 2)
	call := func(replica int, e effect, r render) {
		answer, err := b.try(t, replica, request("k", "{}"), e, r)
		if err != nil {
			t.Errorf("call at replica %d: %v, want no error", replica, err)
		}
		answers <- answer
	}
	go call(0, func(rec *escrow.Record) (reply, error) {
		close(running)
		<-finish
		return b.later(rec)
	}, b.render)
	<-running
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.keyed(gone, 1, request("k", "{}"), noEffect(t), never(t, "render")); err == nil {
		t.Error("a waiting call whose context has ended: got no error, want one")
	}
	go call(1, noEffect(t), never(t, "render"))
	close(finish)
	if one, other := <-answers, <-answers; one != other {
		t.Errorf("two calls with one key are answered %v and %v, want the same answer", one, other)
	}
}

// Without Redis, two calls with the same Idempotency-Key can run at once. The second call may
// change the database after the first call has found no record. Then the first call fails to make
// its change, and returns the second call's answer.
func TestAnotherCallTakesEffectFirst(t *testing.T) {
	for what, row := range map[string]struct {
		expired bool  // an expired record of the key is stored, so the first call's effect fails once and runs again
		failure error // error of the first call's effect; nil: the insert of the first call's record fails
	}{
		"the scope is taken":                              {false, nil},
		"the party has committed":                         {false, problem.New(problem.AlreadyCommitted, "refused")},
		"the scope is taken instead of an expired record": {true, nil},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			b.server.Kill()
			effects, tryOfOther := 1, 1
			if row.expired {
				b.do(t, 0, request("k", "{}"), b.later, b.render)
				b.exec(t, "UPDATE idempotency SET expires_at = 1")
				effects, tryOfOther = 2, 2
			}
			var other reply
			tries := 0
			answer := b.do(t, 0, request("k", "{}"), func(rec *escrow.Record) (reply, error) {
				if tries++; tries == tryOfOther {
					other = b.do(t, 1, request("k", "{}"), b.later, b.render)
				}
				if row.failure != nil {
					return reply{}, row.failure
				}
				return b.later(rec)
			}, b.render)
			if answer != other {
				t.Errorf("the first call is answered %v, want %v, the answer of the second call", answer, other)
			}
			b.effects(t, effects)
		})
	}
}
