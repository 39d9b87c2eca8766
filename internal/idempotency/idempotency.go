// Package idempotency makes a POST repeatable: the same Idempotency-Key with
// the same body replays the stored response, with another body it is a 409
// (SPEC 4, 7.4).
//
// The effect's transaction writes the record, so that effect and record exist
// together or not at all. Where the response is only known later it is stored
// in a second step, and a replay that finds none (the process died in between)
// renders it again. Only success is stored: a refused call changed nothing and
// may be corrected and sent again under the same key.
//
// A record is looked up under all server secrets of the process and written under
// the one in force. An effect that could take place twice is refused by the
// database where another one has come into force meanwhile (store.ErrSecretMoved),
// and then the call begins again.
//
//	fault                                  what a retry meets
//	died before the effect's commit        no record: runs the effect
//	died after it, before the answer       a record: replays or renders
//	Redis down, empty, restarted           the database alone decides: one unique scope
//	database gone                          503, nothing done
package idempotency

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"

	answers "github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/crash"
	"github.com/fairpact/fairpact/internal/ephemeral"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/serversecret"
	"github.com/fairpact/fairpact/internal/store"
)

const (
	// Lifetime is how long a response is replayed.
	Lifetime = 24 * time.Hour
	// KeyLifetime is the same for POST /v1/keys, where the header is the only
	// secret of the caller; there a replay also ends at the key's first use.
	KeyLifetime = 10 * time.Minute

	lockTime = 4 * time.Second       // below waitTime: a retry outlives the lock of a killed process
	waitTime = 5 * time.Second       // for a twin in flight, then 409
	pollTime = 10 * time.Millisecond // before the first look at a twin; doubled up to half a second
	copyTime = 10 * time.Minute      // of a response in Redis
	attempts = 4                     // of an effect that an expired record keeps out
)

// Guard runs effects at most once a key.
type Guard struct {
	store   *store.Store
	redis   *ephemeral.Redis
	secrets *sealing.Secrets
}

// New makes a Guard.
func New(s *store.Store, r *ephemeral.Redis, secrets *sealing.Secrets) *Guard {
	return &Guard{store: s, redis: r, secrets: secrets}
}

// Request is one call as idempotency sees it.
type Request struct {
	Key      string // the header; empty: the call runs as it is
	Caller   string // the Bearer credential, or the client's address where there is none
	Method   string
	Path     string
	Body     func() []byte // RFC 8785; asked for only where there is a key
	Status   int           // HTTP, of success
	Lifetime time.Duration
	NoCopy   bool // keep no copy in Redis
}

// Record is handed to an effect, which writes it in its own transaction.
type Record struct {
	req    Request
	secret *sealing.Secret // that the next three are under
	scope  []byte
	body   []byte
	former [][]byte // the scope under the other secrets of the process
}

// Replay is the record without an answer, for effects whose answer is known
// later. A nil Record (no Idempotency-Key) returns nil.
func (r *Record) Replay() *store.Replay {
	if r == nil {
		return nil
	}
	return &store.Replay{Scope: r.scope, Body: r.body, Lifetime: int64(r.req.Lifetime / time.Second), Secret: r.secret.Fingerprint()}
}

// ReplayWith is the record with its answer: the effect and its answer are one commit.
func (r *Record) ReplayWith(answer any) (*store.Replay, error) {
	if r == nil {
		return nil, nil
	}
	sealed, err := r.seal(answer)
	if err != nil {
		return nil, err
	}
	replay := r.Replay()
	replay.Response = sealed
	return replay, nil
}

// ValidKey reports whether a header is 1 to 255 visible ASCII characters.
func ValidKey(key string) bool {
	for _, c := range []byte(key) {
		if c < 0x21 || c > 0x7e {
			return false
		}
	}
	return len(key) >= 1 && len(key) <= 255
}

// envelope is how an answer is kept: as the release before this one reads it.
type envelope struct {
	Status int             `json:"status"` // HTTP
	Body   json.RawMessage `json:"body"`   // the answer
}

// Do runs effect at most once for the request's key, or replays what it
// answered. render makes the answer from the deal as it stands; it is used
// where the effect took place and its answer was lost. The answer is kept as
// JSON: T MUST survive that.
func Do[T any](ctx context.Context, g *Guard, req Request, effect func(*Record) (T, error), render func() (T, error)) (answer T, err error) {
	for range attempts {
		answer, err = do(ctx, g, req, effect, render)
		if !errors.Is(err, store.ErrSecretMoved) {
			return answer, err
		}
		if err := serversecret.Refresh(ctx, g.store, g.secrets); err != nil {
			return answer, err
		}
	}
	return answer, problem.New(problem.Unavailable, "the server secret is being rotated and nothing was changed; send the same request again in a few seconds").After(2).Because(err)
}

func do[T any](ctx context.Context, g *Guard, req Request, effect func(*Record) (T, error), render func() (T, error)) (answer T, err error) {
	if req.Key == "" {
		return effect(nil)
	}
	rec := g.record(req)
	text, err := g.once(ctx, rec, func() (any, error) { return effect(rec) }, func() (any, error) { return render() })
	if err != nil {
		return answer, err
	}
	err = json.Unmarshal(text, &answer)
	return answer, err
}

// Lost renders an answer that is stored with its effect: a record without one
// cannot be.
func Lost[T any]() (answer T, err error) {
	return answer, errors.New("idempotency: a record without its answer")
}

func (g *Guard) record(req Request) *Record {
	rec := &Record{req: req}
	rec.under(g.secrets.Writer())
	for _, one := range g.secrets.All() {
		if !bytes.Equal(one.Fingerprint(), rec.secret.Fingerprint()) {
			rec.former = append(rec.former, req.scope(one))
		}
	}
	return rec
}

func (r Request) scope(secret *sealing.Secret) []byte {
	return secret.MAC([]byte("scope"), []byte(r.Caller), []byte(r.Method), []byte(r.Path), []byte(r.Key))
}

func (r *Record) under(secret *sealing.Secret) {
	r.secret, r.scope, r.body = secret, r.req.scope(secret), secret.MAC([]byte("body"), r.req.Body())
}

// name is the record's in Redis.
func (r *Record) name() string { return base64.RawURLEncoding.EncodeToString(r.scope) }

// find looks the record up; from then on rec is under the secret that it was
// stored under.
func (g *Guard) find(ctx context.Context, rec *Record) (body, sealed []byte, err error) {
	found, err := g.store.FindReplay(ctx, rec.scope, rec.former)
	if err != nil {
		return nil, nil, err
	}
	if !bytes.Equal(found.Scope, rec.scope) {
		for _, one := range g.secrets.All() {
			if bytes.Equal(found.Scope, rec.req.scope(one)) {
				rec.under(one)
			}
		}
	}
	return found.Body, found.Response, nil
}

// once returns the stored answer as JSON.
func (g *Guard) once(ctx context.Context, rec *Record, effect, render func() (any, error)) ([]byte, error) {
	name := rec.name()
	if text, err := g.copied(ctx, rec, name); err != nil || text != nil {
		return text, err
	}
	deadline, wait := time.Now().Add(waitTime), pollTime
	for {
		unlock, free := g.redis.Lock(ctx, name, lockTime)
		if free {
			defer unlock()
			return g.run(ctx, rec, effect, render)
		}
		body, sealed, err := g.find(ctx, rec)
		if err == nil {
			if text, err := g.open(rec, body, sealed); err != nil || text != nil {
				return text, err
			}
		} else if !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, problem.New(problem.IdempotencyInProgress, "a request with this %s is still running; send the same request again in a few seconds", problem.KeyHeader)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, time.Second/2)
		}
	}
}

// copied finds an answer that Redis still has; nil where it has none.
func (g *Guard) copied(ctx context.Context, rec *Record, name string) ([]byte, error) {
	if rec.req.NoCopy {
		return nil, nil
	}
	both, found := g.redis.Get(ctx, name)
	if !found || len(both) <= len(rec.body) {
		return nil, nil
	}
	text, err := g.open(rec, both[:len(rec.body)], both[len(rec.body):])
	if err != nil && !problem.Is(err, problem.IdempotencyKeyReused) {
		return nil, nil // the database knows
	}
	return text, err
}

// open decrypts a stored answer for the same body and refuses another body.
func (g *Guard) open(rec *Record, body, sealed []byte) ([]byte, error) {
	if !hmac.Equal(body, rec.body) {
		return nil, problem.New(problem.IdempotencyKeyReused, "this %s was used with another body; send the same body to replay its answer, or a new key for a new request", problem.KeyHeader)
	}
	if sealed == nil {
		return nil, nil
	}
	text, err := rec.secret.Unsealed(sealed, []byte(rec.req.Key), []byte(rec.req.Caller), rec.scope)
	if err != nil {
		return nil, err
	}
	var kept envelope
	err = json.Unmarshal(text, &kept)
	return kept.Body, err
}

// run holds the lock, or Redis is gone and a twin may run beside it: the
// database lets one of them through. So the record is looked for before the
// effect and again where the effect fails: a twin that came first may be why (it
// has committed, so this one may not), and then its answer is this one's too.
func (g *Guard) run(ctx context.Context, rec *Record, effect, render func() (any, error)) ([]byte, error) {
	var failure error
	for try := 1; ; try++ {
		body, sealed, err := g.find(ctx, rec)
		switch {
		case err == nil && sealed != nil:
			return g.open(rec, body, sealed)
		case err == nil:
			return g.rendered(ctx, rec, body, render)
		case failure != nil && (try == attempts || !errors.Is(err, store.ErrNotFound) || !errors.Is(failure, store.ErrReplayed)):
			return nil, failure
		case !errors.Is(err, store.ErrNotFound):
			return nil, err
		case failure != nil: // the scope is taken by a record that has expired
			if err := g.store.ExpireReplay(ctx, rec.scope); err != nil {
				return nil, err
			}
		}
		answer, err := effect()
		if err == nil {
			crash.Point("idempotency.effect")
			return g.keep(ctx, rec, answer)
		}
		failure = err
	}
}

func (g *Guard) rendered(ctx context.Context, rec *Record, body []byte, render func() (any, error)) ([]byte, error) {
	if _, err := g.open(rec, body, nil); err != nil {
		return nil, err
	}
	answer, err := render()
	if err != nil {
		return nil, err
	}
	return g.keep(ctx, rec, answer)
}

// keep stores an answer and returns the one that stands: the first one stored.
func (g *Guard) keep(ctx context.Context, rec *Record, answer any) ([]byte, error) {
	sealed, err := rec.seal(answer)
	if err != nil {
		return nil, err
	}
	stands, err := g.store.SetResponse(context.WithoutCancel(ctx), rec.scope, sealed)
	if errors.Is(err, store.ErrNotFound) { // swept, or ended by the key's first use
		return answers.Encode(answer)
	}
	if err != nil {
		return nil, err
	}
	if !rec.req.NoCopy {
		g.redis.Put(ctx, rec.name(), append(append([]byte{}, rec.body...), stands...), copyTime)
	}
	return g.open(rec, rec.body, stands)
}

// seal encrypts an answer for this record alone: under another scope it does
// not open.
func (r *Record) seal(answer any) ([]byte, error) {
	body, err := answers.Encode(answer)
	if err != nil {
		return nil, err
	}
	text, err := answers.Encode(envelope{r.req.Status, body})
	if err != nil {
		return nil, err
	}
	return r.secret.Sealed(text, []byte(r.req.Key), []byte(r.req.Caller), r.scope)
}
