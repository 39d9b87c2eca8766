package idempotency_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fairpact/fairpact/internal/ephemeral"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/localservers"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// bench is two replicas of a guard over one database and one Redis, and an
// effect that can be counted: an API key is inserted.
type bench struct {
	guards []*idempotency.Guard
	secret *sealing.Secret
	all    []*sealing.Secret // that each replica holds
	store  *store.Store
	server *localservers.Redis
	redis  *redis.Client // what Redis holds, as a test sees it
	sql    *pgx.Conn
	calls  atomic.Int64 // of effects and renders, each of which answers its number
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchOn(t, servertest.Postgres(t))
}

func newBenchOn(t *testing.T, url string) *bench {
	t.Helper()
	b := &bench{server: servertest.StartRedis(t)}
	if err := store.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.secret, err = sealing.New(make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	b.all = []*sealing.Secret{b.secret}
	b.replicas(t, url, b.server.URL()+servertest.PatientRedis)
	options, err := redis.ParseURL(b.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	b.redis = redis.NewClient(options)
	t.Cleanup(func() { _ = b.redis.Close() })
	if b.sql, err = pgx.Connect(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.sql.Close(context.Background()) })
	return b
}

// replicas makes two guards over a database and a Redis.
func (b *bench) replicas(t *testing.T, url, redisURL string) {
	t.Helper()
	b.guards = nil
	for range 2 {
		s, err := store.Open(t.Context(), url, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		r, err := ephemeral.Open(redisURL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		b.store = s
		secrets, err := sealing.NewSecrets(b.all...)
		if err != nil {
			t.Fatal(err)
		}
		b.guards = append(b.guards, idempotency.New(s, r, secrets))
	}
}

func request(key, body string) idempotency.Request {
	return idempotency.Request{
		Key: key, Caller: "fp_caller", Method: "POST", Path: "/v1/deals", Status: 201, Lifetime: time.Hour,
		Body: func() []byte { return []byte(body) },
	}
}

func random32() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return b
}

// reply is what an effect answers: its number, so that no two are the same.
type reply struct {
	Number int64  `json:"number"`
	Text   string `json:"text,omitempty"`
}

type (
	effect = func(*idempotency.Record) (reply, error)
	render = func() (reply, error)
)

func (b *bench) reply() reply { return reply{Number: b.calls.Add(1)} }

// later is an effect whose answer is stored after it.
func (b *bench) later(rec *idempotency.Record) (reply, error) {
	if err := b.store.InsertKey(context.Background(), random32(), rec.Replay()); err != nil {
		return reply{}, err
	}
	return b.reply(), nil
}

// atOnce is an effect whose answer is stored with it.
func (b *bench) atOnce(rec *idempotency.Record) (reply, error) {
	answer := b.reply()
	replay, err := rec.ReplayWith(answer)
	if err != nil {
		return answer, err
	}
	return answer, b.store.InsertKey(context.Background(), random32(), replay)
}

// render makes the answer.
func (b *bench) render() (reply, error) { return b.reply(), nil }

// never is what must not be called.
func never(t *testing.T, what string) render {
	return func() (reply, error) {
		t.Helper()
		t.Errorf("%s is called", what)
		return reply{}, errors.New(what)
	}
}

func noEffect(t *testing.T) effect {
	return func(*idempotency.Record) (reply, error) { return never(t, "the effect")() }
}

// try runs one call on a replica.
func (b *bench) try(t *testing.T, replica int, req idempotency.Request, e effect, r render) (reply, error) {
	return idempotency.Do(t.Context(), b.guards[replica], req, e, r)
}

// do runs one call that succeeds.
func (b *bench) do(t *testing.T, replica int, req idempotency.Request, e effect, r render) reply {
	t.Helper()
	answer, err := b.try(t, replica, req, e, r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// took is how many effects took place.
func (b *bench) took(t *testing.T) (n int) {
	t.Helper()
	if err := b.sql.QueryRow(t.Context(), "SELECT count(*) FROM api_keys").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (b *bench) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := b.sql.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// forget empties Redis.
func (b *bench) forget(t *testing.T) {
	t.Helper()
	if err := b.redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}
