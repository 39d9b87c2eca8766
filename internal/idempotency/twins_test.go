package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// 24 at once under one key, on two replicas, with Redis and without it: the
// effect takes place once, and all are given one body.
func TestTwins(t *testing.T) {
	for _, redis := range []string{"up", "gone", "emptied meanwhile"} {
		b := newBench(t)
		if redis == "gone" {
			b.server.Kill()
		}
		for what, effect := range map[string]func(*idempotency.Record) (idempotency.Response, error){
			"answer stored later": b.later, "answer stored at once": b.atOnce, "the second is refused": b.committing(t),
		} {
			t.Run("Redis "+redis+", "+what, func(t *testing.T) {
				before := b.took(t) + b.commitments(t)
				var group sync.WaitGroup
				bodies := make([]string, 24)
				for i := range bodies {
					group.Go(func() {
						if redis == "emptied meanwhile" && i%6 == 5 {
							_ = b.redis.FlushAll(t.Context()).Err()
						}
						resp, err := b.guards[i%2].Do(t.Context(), request(what, "{}"), effect, b.render)
						if err != nil || resp.Status != 201 {
							t.Errorf("call %d: %d, %v", i, resp.Status, err)
						}
						bodies[i] = string(resp.Body)
					})
				}
				group.Wait()
				if n := b.took(t) + b.commitments(t) - before; n != 1 {
					t.Errorf("the effect took place %d times", n)
				}
				for i, body := range bodies {
					if body != bodies[0] {
						t.Errorf("call %d was answered %s and call 0 %s", i, body, bodies[0])
					}
				}
			})
		}
	}
}

// committing is an effect as a commit is one: what keeps the second one out is
// not its record but what the first has done.
func (b *bench) committing(t *testing.T) func(*idempotency.Record) (idempotency.Response, error) {
	t.Helper()
	owner := random32()
	if err := b.store.InsertKey(t.Context(), owner, nil); err != nil {
		t.Fatal(err)
	}
	now, err := b.store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := &store.Static{
		DealID: "d_1", OwnerHash: owner, Params: []byte("{}"), Mode: "sealed", Retention: "standard", Labels: []string{"a", "b"},
		CommitDeadline: now + 3600, RevealDeadline: now + 7200,
	}
	if _, ok, err := b.store.CreateDeal(t.Context(), d, [][]byte{random32(), random32()}, nil); err != nil || !ok {
		t.Fatal(ok, err)
	}
	return func(rec *idempotency.Record) (idempotency.Response, error) {
		done, err := b.store.Commit(context.Background(), d.DealID, 0, [32]byte{}, rec.Replay())
		if err == nil && !done {
			err = problem.New(problem.AlreadyCommitted, "refused")
		}
		return b.answer(), err
	}
}

func (b *bench) commitments(t *testing.T) (n int) {
	t.Helper()
	if err := b.sql.QueryRow(t.Context(), "SELECT count(*) FROM commitments").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A twin in flight is waited for, and another body meanwhile is a 409.
func TestInFlight(t *testing.T) {
	b := newBench(t)
	running, finish := make(chan struct{}), make(chan struct{})
	first := make(chan string, 1)
	go func() {
		resp, err := b.guards[0].Do(t.Context(), request("k", "{}"), func(rec *idempotency.Record) (idempotency.Response, error) {
			close(running)
			<-finish
			return b.later(rec)
		}, b.render)
		if err != nil {
			t.Error(err)
		}
		first <- string(resp.Body)
	}()
	<-running
	// A caller that gives up while it waits is told so.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.guards[1].Do(gone, request("k", "{}"), noEffect(t), never(t, "render")); err == nil {
		t.Error("a caller that gave up is answered")
	}
	twin := make(chan string, 1)
	go func() {
		resp, err := b.guards[1].Do(t.Context(), request("k", "{}"), noEffect(t), never(t, "render"))
		if err != nil {
			t.Error(err)
		}
		twin <- string(resp.Body)
	}()
	close(finish)
	if one, other := <-first, <-twin; one != other {
		t.Errorf("the first is answered %s and its twin %s", one, other)
	}
	if _, err := b.guards[1].Do(t.Context(), request("k", `{"other":1}`), noEffect(t), never(t, "render")); !problem.Is(err, problem.IdempotencyKeyReused) {
		t.Errorf("another body: %v", err)
	}
}

// A lock that does not come free, and no record: the caller is told to come back.
func TestInFlightForTooLong(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	// Find the lock's name as Redis knows it.
	var name string
	_, err := b.guards[0].Do(ctx, request("k", "{}"), func(*idempotency.Record) (idempotency.Response, error) {
		keys, err := b.redis.Keys(ctx, "*").Result()
		if err != nil || len(keys) != 1 || !strings.Contains(keys[0], "lock") {
			t.Errorf("while the effect runs Redis holds %v, %v", keys, err)
			return idempotency.Response{}, errors.New("no lock")
		}
		name = keys[0]
		return idempotency.Response{}, problem.New(problem.InvalidRequest, "refused")
	}, never(t, "render"))
	if !problem.Is(err, problem.InvalidRequest) {
		t.Fatal(err)
	}
	if err := b.redis.Set(ctx, name, "somebody else", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.guards[0].Do(ctx, request("k", "{}"), noEffect(t), never(t, "render")); !problem.Is(err, problem.IdempotencyInProgress) {
		t.Errorf("%v, want IDEMPOTENCY_IN_PROGRESS", err)
	}
	if got := b.redis.Get(ctx, name).Val(); got != "somebody else" {
		t.Errorf("somebody else's lock is now %q", got)
	}
}

// An expired record that is still there is used anew, by one of those that find
// it; with Redis gone a twin may come in between.
func TestTwinsOfAnExpiredRecord(t *testing.T) {
	b := newBench(t)
	b.server.Kill()
	if _, err := b.guards[0].Do(t.Context(), request("k", "{}"), b.later, b.render); err != nil {
		t.Fatal(err)
	}
	b.exec(t, "UPDATE idempotency SET expires_at = 1")
	var twin idempotency.Response
	tries := 0
	resp, err := b.guards[0].Do(t.Context(), request("k", "{}"), func(rec *idempotency.Record) (idempotency.Response, error) {
		if tries++; tries == 2 {
			var err error
			if twin, err = b.guards[1].Do(t.Context(), request("k", "{}"), b.later, b.render); err != nil {
				t.Error(err)
			}
		}
		return b.later(rec)
	}, b.render)
	if err != nil || string(resp.Body) != string(twin.Body) {
		t.Errorf("answered %s, %v; its twin %s", resp.Body, err, twin.Body)
	}
	if n := b.took(t); n != 2 {
		t.Errorf("the effect took place %d times, want once for each life of the record", n)
	}
}
