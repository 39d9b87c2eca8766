package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/problem"
)

// The copy in Redis and the record in Postgres replay alike.
func TestReplays(t *testing.T) {
	b := newBench(t)
	req := request("k", "{}")
	first := b.do(t, 0, req, b.later, never(t, "render"))
	if got := b.do(t, 1, req, noEffect(t), never(t, "render")); got != first {
		t.Errorf("by Redis: %v, want %v", got, first)
	}
	b.forget(t)
	if got := b.do(t, 1, req, noEffect(t), never(t, "render")); got != first {
		t.Errorf("by Postgres: %v, want %v", got, first)
	}
	// A copy that somebody has spoilt counts as none.
	for _, key := range b.redis.Keys(t.Context(), "*").Val() {
		text, err := b.redis.Get(t.Context(), key).Bytes()
		if err != nil {
			t.Fatal(err)
		}
		text[len(text)-1] ^= 1
		if err := b.redis.Set(t.Context(), key, text, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.do(t, 0, req, noEffect(t), never(t, "render")); got != first {
		t.Errorf("past a spoilt copy: %v, want %v", got, first)
	}
	b.server.Kill()
	if got := b.do(t, 0, req, noEffect(t), never(t, "render")); got != first {
		t.Errorf("without Redis: %v, want %v", got, first)
	}
}

// SPEC 7.4: the same key with another body gives 409, wherever the first is.
func TestAnotherBody(t *testing.T) {
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
	refused("copied")
	b.forget(t)
	refused("stored")
	b.exec(t, "UPDATE idempotency SET response = NULL")
	b.forget(t)
	refused("without a response")
	if n := b.took(t); n != 1 {
		t.Errorf("the effect took place %d times", n)
	}
}

// A scope is caller, method, path and key: what differs in one of them is
// another call.
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
	if n := b.took(t); n != len(seen) {
		t.Errorf("%d effects for %d calls", n, len(seen))
	}
}

// A refused call changed nothing: it may be corrected and sent again under its key.
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
	if keys := b.redis.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("Redis holds %v", keys)
	}
	first := b.do(t, 1, request("k", `{"right":1}`), b.later, b.render)
	if got := b.do(t, 0, request("k", `{"right":1}`), noEffect(t), never(t, "render")); got != first {
		t.Errorf("%v, want %v", got, first)
	}
}

// The process died between the effect's commit and the answer: the record has no
// response, so a replay renders one, once.
func TestALostAnswerIsRenderedOnce(t *testing.T) {
	b := newBench(t)
	req := request("k", "{}")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the effect did not die")
			}
		}()
		_, _ = b.try(t, 0, req, func(rec *idempotency.Record) (reply, error) {
			_, _ = b.later(rec)
			panic("dies here")
		}, never(t, "render"))
	}()
	if _, err := b.try(t, 1, req, noEffect(t), func() (reply, error) {
		return reply{}, problem.New(problem.Unavailable, "not now")
	}); !problem.Is(err, problem.Unavailable) {
		t.Errorf("an answer that cannot be rendered: %v", err)
	}
	first := b.do(t, 1, req, noEffect(t), b.render)
	for range 2 {
		if got := b.do(t, 0, req, noEffect(t), never(t, "render")); got != first {
			t.Errorf("%v, want what was rendered first, %v", got, first)
		}
		b.forget(t)
	}
	if n := b.took(t); n != 1 {
		t.Errorf("the effect took place %d times", n)
	}
}

// An answer that is stored with its effect is not rendered: a key's text is
// nowhere else.
func TestAnAnswerStoredWithTheEffectIsReplayed(t *testing.T) {
	b := newBench(t)
	req := request("k", "{}")
	req.NoCopy = true
	var answered reply
	func() {
		defer func() { _ = recover() }()
		_, _ = b.try(t, 0, req, func(rec *idempotency.Record) (reply, error) {
			var err error
			if answered, err = b.atOnce(rec); err != nil {
				t.Error(err)
			}
			panic("dies here")
		}, never(t, "render"))
	}()
	for replica := range b.guards {
		if got := b.do(t, replica, req, noEffect(t), never(t, "render")); got != answered {
			t.Errorf("%v, want %v", got, answered)
		}
	}
	if keys := b.redis.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("NoCopy, and Redis holds %v", keys)
	}
}

// After its lifetime a key is free again, before any sweep.
func TestAnExpiredRecordIsUsedAnew(t *testing.T) {
	b := newBench(t)
	first := b.do(t, 0, request("k", "{}"), b.later, b.render)
	b.exec(t, "UPDATE idempotency SET expires_at = 1")
	b.forget(t)
	second := b.do(t, 0, request("k", `{"other":1}`), b.later, never(t, "render"))
	if second == first {
		t.Error("an expired record is replayed")
	}
	if got := b.do(t, 1, request("k", `{"other":1}`), noEffect(t), never(t, "render")); got != second {
		t.Errorf("%v, want %v", got, second)
	}
	if n := b.took(t); n != 2 {
		t.Errorf("the effect took place %d times, want 2", n)
	}
}

// What is kept tells nothing: not the header, the caller, the body or the answer.
func TestWhatIsKeptTellsNothing(t *testing.T) {
	b := newBench(t)
	req := request("header-text", `{"body":"body-text"}`)
	req.Caller = "caller-text"
	b.do(t, 0, req, func(rec *idempotency.Record) (reply, error) {
		answer, err := b.later(rec)
		answer.Text = "answer-text"
		return answer, err
	}, b.render)
	var scope, body, response []byte
	if err := b.sql.QueryRow(t.Context(), "SELECT scope, body, response FROM idempotency").Scan(&scope, &body, &response); err != nil {
		t.Fatal(err)
	}
	kept := [][]byte{scope, body, response}
	for _, key := range b.redis.Keys(t.Context(), "*").Val() {
		kept = append(kept, []byte(key), []byte(b.redis.Get(t.Context(), key).Val()))
	}
	if len(kept) != 5 {
		t.Errorf("%d texts are kept, want a record and a copy", len(kept))
	}
	for _, text := range kept {
		for _, plain := range []string{"header-text", "body-text", "caller-text", "answer-text", "number"} {
			if bytes.Contains(text, []byte(plain)) {
				t.Errorf("%q is in what is kept", plain)
			}
		}
	}
}

// Without the header a call runs as it is, every time, and its body is not
// computed.
func TestWithoutAKeyNothingIsKept(t *testing.T) {
	b := newBench(t)
	req := request("", "")
	req.Body = func() []byte {
		t.Error("the body is computed")
		return nil
	}
	for range 2 {
		b.do(t, 0, req, func(rec *idempotency.Record) (reply, error) {
			if rec != nil || rec.Replay() != nil {
				t.Error("a call without a key has a record")
			}
			if replay, err := rec.ReplayWith(reply{}); replay != nil || err != nil {
				t.Error("a call without a key has a record with an answer")
			}
			return b.later(rec)
		}, never(t, "render"))
	}
	if n := b.took(t); n != 2 {
		t.Errorf("the effect took place %d times, want 2", n)
	}
}

// With the database gone nothing is done and nothing is promised.
func TestDatabaseGone(t *testing.T) {
	server := servertest.StartPostgres(t)
	b := newBenchOn(t, server.AdminURL())
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	for replica := range b.guards {
		if _, err := b.try(t, replica, request("k", "{}"), noEffect(t), never(t, "render")); !problem.Is(err, problem.Unavailable) {
			t.Errorf("%v, want UNAVAILABLE", err)
		}
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The same request again, as the error says: the pool may still hold a
	// connection that broke.
	for {
		_, err := b.try(t, 0, request("k", "{}"), b.later, b.render)
		if err == nil {
			break
		}
		if !problem.Is(err, problem.Unavailable) {
			t.Fatal(err)
		}
	}
	var n int
	sql, err := pgx.Connect(t.Context(), server.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	defer sql.Close(context.Background())
	if err := sql.QueryRow(t.Context(), "SELECT count(*) FROM api_keys").Scan(&n); err != nil || n != 1 {
		t.Errorf("the effect took place %d times, %v", n, err)
	}
}
