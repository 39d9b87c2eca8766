package idempotency_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
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
				t.Errorf("%s: %v, want IDEMPOTENCY_KEY_REUSED", where, err)
			}
		}
	}
	refused("with an answer")
	b.exec(t, "UPDATE idempotency SET response = NULL")
	refused("without an answer")
	b.effects(t, 1)
}

// A scope is caller, method, path and key. Calls that differ in one of them are
// different calls.
func TestScopes(t *testing.T) {
	b := newBench(t)
	seen := map[reply]string{}
	for _, change := range []func(*idempotency.Request){
		func(*idempotency.Request) {},
		func(r *idempotency.Request) { r.Caller += "2" },
		func(r *idempotency.Request) { r.Method = "PUT" },
		func(r *idempotency.Request) { r.Path += "/d_1/cancel" },
		func(r *idempotency.Request) { r.Key += "2" },
		func(r *idempotency.Request) { r.Caller, r.Method = "fp_callerPO", "ST" },
		func(r *idempotency.Request) { r.Path, r.Key = "/v1/deal", "sk" },
	} {
		req := request("k", "{}")
		change(&req)
		answer := b.do(t, 0, req, b.later, b.render)
		if other, known := seen[answer]; known {
			t.Errorf("%+v replays %s", req, other)
		}
		seen[answer] = fmt.Sprintf("%+v", req)
	}
	b.effects(t, len(seen))
}

// A refused call changed nothing. It may be corrected and sent again with its key.
func TestARefusedCallIsNotStored(t *testing.T) {
	b := newBench(t)
	refusal := problem.New(problem.CommitmentMismatch, "correct it")
	for range 2 {
		_, err := b.try(t, 0, request("k", `{"wrong":1}`), func(*idempotency.Record) (reply, error) {
			return reply{}, refusal
		}, never(t, "render"))
		if !errors.Is(err, refusal) {
			t.Fatalf("%v, want the effect's own error", err)
		}
	}
	b.replays(t, "corrected", request("k", `{"right":1}`), b.do(t, 1, request("k", `{"right":1}`), b.later, b.render))
}

// If the process dies between the effect's commit and the answer, the record has no
// answer. A replay renders one, once.
func TestALostAnswerIsRenderedOnce(t *testing.T) {
	b := newBench(t)
	req := request("k", "{}")
	b.dies(t, req, b.later)
	if _, err := b.try(t, 1, req, noEffect(t), func() (reply, error) {
		return reply{}, problem.New(problem.Unavailable, "not now")
	}); !problem.Is(err, problem.Unavailable) {
		t.Errorf("an answer that cannot be rendered: %v", err)
	}
	first := b.do(t, 1, req, noEffect(t), b.render)
	b.replays(t, "after the render", req, first)
	b.effects(t, 1)
}

// An answer that is stored with its effect is replayed, never rendered: nothing
// else holds the text of an API key. Nothing stays in Redis.
func TestAnAnswerStoredWithTheEffectIsReplayed(t *testing.T) {
	b := newBench(t)
	req := request("k", "{}")
	var answer reply
	b.dies(t, req, func(rec *idempotency.Record) (_ reply, err error) {
		answer, err = b.atOnce(rec)
		return answer, err
	})
	b.replays(t, "stored with the effect", req, answer)
	if keys := b.redis.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("Redis holds %v", keys)
	}
}

// An expired key can be used again before it is swept.
func TestAnExpiredRecordIsReplaced(t *testing.T) {
	b := newBench(t)
	first := b.do(t, 0, request("k", "{}"), b.later, b.render)
	b.exec(t, "UPDATE idempotency SET expires_at = 1")
	another := request("k", `{"other":1}`)
	second := b.do(t, 0, another, b.later, never(t, "render"))
	if second == first {
		t.Error("an expired record is replayed")
	}
	b.replays(t, "the new record", another, second)
	b.effects(t, 2)
}

// Without the header a call has no record, and its body is not computed.
func TestACallWithoutAKeyHasNoRecord(t *testing.T) {
	b := newBench(t)
	req := request("", "")
	req.Body = func() []byte {
		t.Error("the body is computed")
		return nil
	}
	for range 2 {
		b.do(t, 0, req, func(rec *idempotency.Record) (reply, error) {
			if replay, err := rec.ReplayWith(reply{}); rec != nil || rec.Replay() != nil || replay != nil || err != nil {
				t.Errorf("it has a record: %v, %v", rec, err)
			}
			return b.later(rec)
		}, never(t, "render"))
	}
	b.effects(t, 2)
}

// scopeOf returns the record's scope as every release computes it.
func (b *bench) scopeOf(req idempotency.Request) []byte {
	return b.secret.MAC([]byte("scope"), []byte(req.Caller), []byte(req.Method), []byte(req.Path), []byte(req.Key))
}

// In a rolling upgrade the previous release reads what this release stores.
func TestThePreviousReleaseReadsARecord(t *testing.T) {
	b := newBench(t)
	for name, effect := range map[string]effect{"stored later": b.later, "stored at once": b.atOnce} {
		req := request(name, "{}")
		answer := b.do(t, 0, req, effect, never(t, "render"))
		var body, sealed []byte
		check(t, b.sql.QueryRow(t.Context(), "SELECT body, response FROM idempotency WHERE scope = $1", b.scopeOf(req)).Scan(&body, &sealed))
		if string(body) != string(b.secret.MAC([]byte("body"), []byte("{}"))) {
			t.Errorf("%s: the MAC of the body is different", name)
		}
		text, err := b.secret.Unsealed(sealed, []byte(req.Key), []byte(req.Caller), b.scopeOf(req))
		check(t, err)
		var stored struct { // as in the previous release
			Status int             `json:"status"`
			Body   json.RawMessage `json:"body"`
		}
		check(t, json.Unmarshal(text, &stored))
		var inside reply
		if err := json.Unmarshal(stored.Body, &inside); err != nil || stored.Status != 201 || inside != answer {
			t.Errorf("%s: stored is %s, answered was %v", name, text, answer)
		}
	}
}

// In a rolling upgrade this release reads what the previous one stored.
func TestARecordOfThePreviousReleaseIsReplayed(t *testing.T) {
	b := newBench(t)
	req := request("k", "{}")
	// The previous release stored the whole REST body, with members that this one renders.
	sealed, err := b.secret.Sealed([]byte(`{"status":201,"body":{"number":4711,"next":"wait"}}`), []byte(req.Key), []byte(req.Caller), b.scopeOf(req))
	check(t, err)
	b.exec(t, "INSERT INTO idempotency (scope, body, response, expires_at) VALUES ($1, $2, $3, extract(epoch FROM now())::bigint + 600)",
		b.scopeOf(req), b.secret.MAC([]byte("body"), []byte("{}")), sealed)
	b.replays(t, "of the previous release", req, reply{Number: 4711})
}

// The table proves the control characters, which MCP can send; e2e/api sends the
// other forms.
func TestValidKey(t *testing.T) {
	for key, want := range map[string]bool{"": false, "!~": true, "a b": false, "a\t": false, "a\x00": false, "a\x7f": false, "\xff": false} {
		if got := idempotency.ValidKey(key); got != want {
			t.Errorf("%q: %v, want %v", key, got, want)
		}
	}
}
