package escrow_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

func TestReplayWithAndWithoutRedis(t *testing.T) {
	b := newBench(t)
	req := request("k", "{}")
	first := b.do(t, 0, req, b.later, never(t, "render"))
	b.replays(t, "with Redis", req, first)
	b.server.Kill()
	b.replays(t, "without Redis", req, first)
}

// SPEC 7.4: the same key with another body gives 409.
func TestAnotherBodyIsRefused(t *testing.T) {
	b := newBench(t)
	b.do(t, 0, request("k", "{}"), b.later, b.render)
	refused := func(where string) {
		t.Helper()
		for replica := range b.guards {
			if _, err := b.try(t, replica, request("k", `{"a":1}`), noEffect(t), never(t, "render")); !problem.Is(err, problem.IdempotencyKeyReused) {
				t.Errorf("another body, %s: got error %v, want IDEMPOTENCY_KEY_REUSED", where, err)
			}
		}
	}
	refused("with an answer")
	b.exec(t, "UPDATE idempotency SET response = NULL")
	refused("without an answer")
	b.effects(t, 1)
}

// A call that differs in caller, method, path or key is a new call, not a replay.
func TestScopes(t *testing.T) {
	b := newBench(t)
	seen := map[reply]string{}
	for _, change := range []func(*escrow.KeyedCall){
		func(*escrow.KeyedCall) {},
		func(r *escrow.KeyedCall) { r.Caller += "2" },
		func(r *escrow.KeyedCall) { r.Method = "PUT" },
		func(r *escrow.KeyedCall) { r.Path += "/d_1/cancel" },
		func(r *escrow.KeyedCall) { r.Key += "2" },
		func(r *escrow.KeyedCall) { r.Caller, r.Method = "fp_callerPO", "ST" },
		func(r *escrow.KeyedCall) { r.Path, r.Key = "/v1/deal", "sk" },
	} {
		req := request("k", "{}")
		change(&req)
		answer := b.do(t, 0, req, b.later, b.render)
		if other, known := seen[answer]; known {
			t.Errorf("request %+v replays the answer of %s, want an answer of its own", req, other)
		}
		seen[answer] = fmt.Sprintf("%+v", req)
	}
	b.effects(t, len(seen))
}

func TestARefusedCallIsNotStored(t *testing.T) {
	b := newBench(t)
	refusal := problem.New(problem.CommitmentMismatch, "correct it")
	for range 2 {
		_, err := b.try(t, 0, request("k", `{"wrong":1}`), func(*escrow.Record) (reply, error) {
			return reply{}, refusal
		}, never(t, "render"))
		if !errors.Is(err, refusal) {
			t.Fatalf("Do: got error %v, want %v, the effect's own error", err, refusal)
		}
	}
	b.replays(t, "corrected", request("k", `{"right":1}`), b.do(t, 1, request("k", `{"right":1}`), b.later, b.render))
}

// If the process dies after the effect's transaction, the idempotency record has no answer. The
// first retry of the request whose render succeeds stores the answer.
func TestALostAnswerIsRenderedOnce(t *testing.T) {
	b := newBench(t)
	req := request("k", "{}")
	b.dies(t, req, b.later)
	if _, err := b.try(t, 1, req, noEffect(t), func() (reply, error) {
		return reply{}, problem.New(problem.Unavailable, "not now")
	}); !problem.Is(err, problem.Unavailable) {
		t.Errorf("replay with a failing render: got error %v, want UNAVAILABLE", err)
	}
	first := b.do(t, 1, req, noEffect(t), b.render)
	b.replays(t, "after the render", req, first)
	b.effects(t, 1)
}

// An answer with a new API key cannot be rendered again: the database has only the key's
// hash. A replay must return the stored answer. Redis must not hold the answer.
func TestAnAnswerStoredWithTheEffectIsReplayed(t *testing.T) {
	b := newBench(t)
	req := request("k", "{}")
	var answer reply
	b.dies(t, req, func(rec *escrow.Record) (_ reply, err error) {
		answer, err = b.atOnce(rec)
		return answer, err
	})
	b.replays(t, "stored with the effect", req, answer)
	if keys := b.redis.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("Redis has the keys %v, want none", keys)
	}
}

func TestAnExpiredRecordIsReplaced(t *testing.T) {
	b := newBench(t)
	first := b.do(t, 0, request("k", "{}"), b.later, b.render)
	b.exec(t, "UPDATE idempotency SET expires_at = 1")
	another := request("k", `{"other":1}`)
	second := b.do(t, 0, another, b.later, never(t, "render"))
	if second == first {
		t.Errorf("a call after the record has expired replays %v, want a new answer", second)
	}
	b.replays(t, "the new record", another, second)
	b.effects(t, 2)
}

func TestACallWithoutAKeyHasNoRecord(t *testing.T) {
	b := newBench(t)
	req := request("", "")
	for range 2 {
		b.do(t, 0, req, func(rec *escrow.Record) (reply, error) {
			if replay, err := rec.ReplayWith(reply{}); rec.Replay() != nil || replay != nil || err != nil {
				t.Errorf("a call without a key: replay %v, %v; want nil for both", replay, err)
			}
			return b.later(rec)
		}, never(t, "render"))
	}
	b.effects(t, 2)
}

// Only MCP can send a key with control characters. e2e/api tests other keys over REST.
func TestValidKey(t *testing.T) {
	for key, want := range map[string]bool{"": false, "!~": true, "a b": false, "a\t": false, "a\x00": false, "a\x7f": false, "\xff": false} {
		if got := escrow.ValidKey(key); got != want {
			t.Errorf("ValidKey(%q) = %v, want %v", key, got, want)
		}
	}
}
