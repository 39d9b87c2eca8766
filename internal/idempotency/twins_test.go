package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// 24 at once under one key, on two replicas, with Redis and without it: the
// effect takes place once, and all are given one answer.
func TestTwins(t *testing.T) {
	for _, redis := range []string{"up", "gone", "emptied meanwhile", "a cluster"} {
		url := servertest.Postgres(t)
		b := newBenchOn(t, url)
		switch redis {
		case "gone":
			b.server.Kill()
		case "a cluster":
			cluster, _ := servertest.RedisCluster(t, 3)
			b.replicas(t, url, cluster+"&"+strings.TrimPrefix(servertest.PatientRedis, "?"))
		}
		for what, effect := range map[string]effect{
			"answer stored later": b.later, "answer stored at once": b.atOnce, "the second is refused": b.committing(t),
		} {
			t.Run("Redis "+redis+", "+what, func(t *testing.T) {
				before := b.took(t) + b.commitments(t)
				var group sync.WaitGroup
				answers := make([]reply, 24)
				for i := range answers {
					group.Go(func() {
						if redis == "emptied meanwhile" && i%6 == 5 {
							_ = b.redis.FlushAll(t.Context()).Err()
						}
						var err error
						if answers[i], err = b.try(t, i%2, request(what, "{}"), effect, b.render); err != nil {
							t.Errorf("call %d: %v", i, err)
						}
					})
				}
				group.Wait()
				if n := b.took(t) + b.commitments(t) - before; n != 1 {
					t.Errorf("the effect took place %d times", n)
				}
				for i, answer := range answers {
					if answer != answers[0] {
						t.Errorf("call %d was answered %v and call 0 %v", i, answer, answers[0])
					}
				}
			})
		}
	}
}

// committing is an effect as a commit is one: what keeps the second one out is
// not its record but what the first has done.
func (b *bench) committing(t *testing.T) effect {
	t.Helper()
	owner := random32()
	if err := b.store.InsertKey(t.Context(), owner, nil); err != nil {
		t.Fatal(err)
	}
	now, err := b.store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := store.NewDeal{TokenHashes: [][]byte{random32(), random32()}, Declaration: &store.Declaration{
		DealID: "d_1", OwnerHash: owner, Params: []byte("{}"), Mode: "sealed", Retention: "standard", Labels: []string{"a", "b"},
		CommitDeadline: now + 3600, RevealDeadline: now + 7200,
	}}
	if created, err := b.store.CreateDeal(t.Context(), d); err != nil || !created.OK {
		t.Fatal(created, err)
	}
	return func(rec *idempotency.Record) (reply, error) {
		done, err := b.store.Commit(context.Background(), store.Act{DealID: d.DealID, Replay: rec.Replay()})
		if err == nil && !done.Done {
			err = problem.New(problem.AlreadyCommitted, "refused")
		}
		return b.reply(), err
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
func TestATwinInFlightIsWaitedFor(t *testing.T) {
	b := newBench(t)
	running, finish := make(chan struct{}), make(chan struct{})
	answers := make(chan reply, 2)
	call := func(replica int, e effect, r render) {
		answer, err := b.try(t, replica, request("k", "{}"), e, r)
		if err != nil {
			t.Error(err)
		}
		answers <- answer
	}
	go call(0, func(rec *idempotency.Record) (reply, error) {
		close(running)
		<-finish
		return b.later(rec)
	}, b.render)
	<-running
	// A caller that gives up while it waits is told so.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := idempotency.Do(gone, b.guards[1], request("k", "{}"), noEffect(t), never(t, "render")); err == nil {
		t.Error("a caller that gave up is answered")
	}
	go call(1, noEffect(t), never(t, "render"))
	close(finish)
	if one, other := <-answers, <-answers; one != other {
		t.Errorf("twins are answered %v and %v", one, other)
	}
	if _, err := b.try(t, 1, request("k", `{"other":1}`), noEffect(t), never(t, "render")); !problem.Is(err, problem.IdempotencyKeyReused) {
		t.Errorf("another body: %v", err)
	}
}

// A lock that does not come free, and no record: the caller is told to come back.
func TestATwinThatTakesTooLongIsA409(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	// Find the lock's name as Redis knows it.
	var name string
	_, err := b.try(t, 0, request("k", "{}"), func(*idempotency.Record) (reply, error) {
		keys, err := b.redis.Keys(ctx, "*").Result()
		if err != nil || len(keys) != 1 || !strings.Contains(keys[0], "lock") {
			t.Errorf("while the effect runs Redis holds %v, %v", keys, err)
			return reply{}, errors.New("no lock")
		}
		name = keys[0]
		return reply{}, problem.New(problem.InvalidRequest, "refused")
	}, never(t, "render"))
	if !problem.Is(err, problem.InvalidRequest) {
		t.Fatal(err)
	}
	if err := b.redis.Set(ctx, name, "somebody else", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.try(t, 0, request("k", "{}"), noEffect(t), never(t, "render")); !problem.Is(err, problem.IdempotencyInProgress) {
		t.Errorf("%v, want IDEMPOTENCY_IN_PROGRESS", err)
	}
	if got := b.redis.Get(ctx, name).Val(); got != "somebody else" {
		t.Errorf("somebody else's lock is now %q", got)
	}
}

// An expired record that is still there is used again, by one of those that find
// it; with Redis gone a twin may come in between.
func TestTwinsOfAnExpiredRecord(t *testing.T) {
	b := newBench(t)
	b.server.Kill()
	if _, err := b.try(t, 0, request("k", "{}"), b.later, b.render); err != nil {
		t.Fatal(err)
	}
	b.exec(t, "UPDATE idempotency SET expires_at = 1")
	var twin reply
	tries := 0
	answer, err := b.try(t, 0, request("k", "{}"), func(rec *idempotency.Record) (reply, error) {
		if tries++; tries == 2 {
			var err error
			if twin, err = b.try(t, 1, request("k", "{}"), b.later, b.render); err != nil {
				t.Error(err)
			}
		}
		return b.later(rec)
	}, b.render)
	if err != nil || answer != twin {
		t.Errorf("answered %v, %v; its twin %v", answer, err, twin)
	}
	if n := b.took(t); n != 2 {
		t.Errorf("the effect took place %d times, want once for each life of the record", n)
	}
}
