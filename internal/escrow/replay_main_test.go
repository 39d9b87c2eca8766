package escrow_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/redis"
)

// bench has one Guard for each of two replicas, with one database and one Redis. Each effect
// inserts an API key, so that a test can count the effects.
type bench struct {
	guards []*escrow.Guard
	secret *sealing.Secret
	store  *store.Store
	server *localservers.Redis
	redis  *goredis.Client
	sql    *pgx.Conn
	calls  atomic.Int64
}

func newBench(t *testing.T, newer ...*sealing.Secret) *bench {
	t.Helper()
	url := servertest.Postgres(t)
	check(t, store.Migrate(t.Context(), url))
	b := &bench{server: servertest.StartRedis(t)}
	var err error
	b.secret, err = sealing.New(make([]byte, 32))
	check(t, err)
	for range 2 {
		b.store, err = store.Open(t.Context(), url, 16)
		check(t, err)
		t.Cleanup(b.store.Close)
		check(t, b.store.ClaimSecret(t.Context(), b.secret.Fingerprint()))
		r, err := redis.Open(b.server.URL() + servertest.PatientRedis)
		check(t, err)
		t.Cleanup(func() { _ = r.Close() })
		secrets, err := sealing.NewSecrets(append(newer, b.secret)...)
		check(t, err)
		secrets.Use(b.secret)
		b.guards = append(b.guards, escrow.NewGuard(b.store, r, secrets))
	}
	options, err := goredis.ParseURL(b.server.URL())
	check(t, err)
	b.redis = goredis.NewClient(options)
	t.Cleanup(func() { _ = b.redis.Close() })
	b.sql, err = pgx.Connect(t.Context(), url)
	check(t, err)
	t.Cleanup(func() { _ = b.sql.Close(context.Background()) })
	return b
}

func request(key, body string) escrow.KeyedCall {
	return escrow.KeyedCall{
		Key: key, Caller: "fp_caller", Method: "POST", Path: "/v1/deals", Lifetime: time.Hour,
		Body: map[string]any{"body": body},
	}
}

func random32() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return b
}

type reply struct {
	Number int64 `json:"number"`
}

type (
	effect = func(*escrow.Record) (reply, error)
	render = func() (reply, error)
)

func (b *bench) reply() reply { return reply{Number: b.calls.Add(1)} }

// later is an effect that does not store its answer. keyed stores the answer after the transaction.
func (b *bench) later(rec *escrow.Record) (reply, error) {
	if err := b.store.InsertKey(context.Background(), random32(), rec.Replay()); err != nil {
		return reply{}, err
	}
	return b.reply(), nil
}

// atOnce is an effect that stores its answer in the transaction that inserts the API key.
func (b *bench) atOnce(rec *escrow.Record) (reply, error) {
	answer := b.reply()
	replay, err := rec.ReplayWith(answer)
	if err != nil {
		return answer, err
	}
	return answer, b.store.InsertKey(context.Background(), random32(), replay)
}

func (b *bench) render() (reply, error) { return b.reply(), nil }

func never(t *testing.T, what string) render {
	return func() (reply, error) {
		t.Helper()
		t.Errorf("%s is called, want no call", what)
		return reply{}, errors.New(what)
	}
}

func noEffect(t *testing.T) effect {
	return func(*escrow.Record) (reply, error) { return never(t, "the effect")() }
}

func (b *bench) try(t *testing.T, replica int, req escrow.KeyedCall, e effect, r render) (reply, error) {
	return b.keyed(t.Context(), replica, req, e, r)
}

// keyed calls a Guard as ops.Endpoint.Run does.
func (b *bench) keyed(ctx context.Context, replica int, req escrow.KeyedCall, e effect, r render) (answer reply, err error) {
	rec, err := b.guards[replica].Begin(ctx, req)
	if err != nil {
		return answer, err
	}
	defer rec.End()
	for !rec.Answered {
		if rec.Lost {
			answer, err = r()
		} else {
			answer, err = e(rec)
		}
		if err = rec.Keep(ctx, answer, err); err != nil {
			return answer, err
		}
	}
	return answer, rec.Answer(&answer)
}

func (b *bench) do(t *testing.T, replica int, req escrow.KeyedCall, e effect, r render) reply {
	t.Helper()
	answer, err := b.try(t, replica, req, e, r)
	check(t, err)
	return answer
}

func (b *bench) replays(t *testing.T, what string, req escrow.KeyedCall, want reply) {
	t.Helper()
	for replica := range b.guards {
		if got := b.do(t, replica, req, noEffect(t), never(t, "render")); got != want {
			t.Errorf("%s: replica %d replays %v, want %v", what, replica, got, want)
		}
	}
}

func (b *bench) dies(t *testing.T, req escrow.KeyedCall, e effect) (answer reply) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("the effect did not run, want it to run and panic")
		}
	}()
	_, _ = b.try(t, 0, req, func(rec *escrow.Record) (reply, error) {
		var err error
		answer, err = e(rec)
		check(t, err)
		panic("dies here")
	}, never(t, "render"))
	return answer
}

func (b *bench) effects(t *testing.T, want int) {
	t.Helper()
	var n int
	check(t, b.sql.QueryRow(t.Context(), "SELECT count(*) FROM api_keys").Scan(&n))
	if n != want {
		t.Errorf("%d effects took place, want %d", n, want)
	}
}

func (b *bench) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	_, err := b.sql.Exec(t.Context(), statement, args...)
	check(t, err)
}
