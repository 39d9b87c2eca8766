// Package idempotency makes a POST repeatable. A second POST with the same
// Idempotency-Key and body gets the stored response. With another body it gets a 409
// (SPEC 4, 7.4).
//
// The effect of a POST and its idempotency record are written in one transaction, so that
// both exist or neither does. If the response is known only after the effect, a second step
// stores the response. If the process dies before this second step, a replay finds a record
// without a response, and renders the response from the deal. Only a successful response is
// stored. A refused call changed nothing, so it may be corrected and sent again with the
// same key.
//
// A record's primary key is its scope: a MAC of caller, method, path and
// Idempotency-Key under a server secret. A call looks for its record under all server
// secrets of the process, and writes its record under the secret in force, which the
// database names.
//
// Another secret may come into force between the search and the write. Then the database
// refuses the write (store.ErrSecretReplaced), and the call starts again. For a commitment or a
// cancellation the database does not check the secret: a deal accepts these only once, with or
// without a record.
//
//	fault                                    a retry
//	crash before the effect's commit         finds no record, runs the effect
//	crash after the effect's commit          finds a record, replays or renders the response
//	Redis down, emptied or restarted         has no second effect: the database stores one record per scope
//	database down                            gets 503 and has no effect
package idempotency

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/serversecret"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/platform/redis"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	// Lifetime is how long a response is replayed.
	Lifetime = 24 * time.Hour
	// KeyLifetime is how long a response to POST /v1/keys is replayed. It is short because
	// anybody at the caller's address who sends the same Idempotency-Key gets the new API
	// key. The first use of that API key ends the replay earlier.
	KeyLifetime = 10 * time.Minute

	// lockTime is the longest time that a call holds its lock in Redis. It must be less than
	// waitTime. Then a retry waits until the lock of a killed process expires, and runs the
	// call instead of answering 409.
	lockTime = 4 * time.Second
	waitTime = 5 * time.Second       // how long a call waits for a running call with the same key before it answers 409
	pollTime = 10 * time.Millisecond // first pause of a waiting call; the pause doubles each time, up to half a second
	attempts = 4                     // maximum tries: in Do after a new server secret, in run after an expired record

	_ = uint64(waitTime - lockTime - pollTime - 1) // compiles only if lockTime + pollTime is less than waitTime
)

// Guard lets the effect of a POST happen at most once for each Idempotency-Key.
type Guard struct {
	store   *store.Store
	redis   *redis.Redis
	secrets *sealing.Secrets
}

// New returns a Guard that stores records in s, encrypts responses under the server secrets, and
// keeps the locks of running calls in r.
func New(s *store.Store, r *redis.Redis, secrets *sealing.Secrets) *Guard {
	return &Guard{store: s, redis: r, secrets: secrets}
}

// Request is a call of REST or MCP with its Idempotency-Key.
type Request struct {
	Key      string // value of Idempotency-Key (MCP: idempotency_key); empty: none, the call has no record
	Caller   string // the API key or invite token, or the client's address if there is none
	Method   string
	Path     string
	Body     func() []byte // returns the body in its RFC 8785 form; called only if there is a key
	Lifetime time.Duration
}

// Record is the idempotency record of a call. The function `effect` of Do stores the record in the
// transaction that makes the call's change.
type Record struct {
	req    Request
	secret *sealing.Secret
	scope  []byte
	body   []byte
	former [][]byte // scopes of the same request under the other server secrets of the process
	stored bool     // the effect stores the response itself (ReplayWith)
}

// Replay returns the record without a response, which is stored later; nil for a nil Record.
func (r *Record) Replay() *store.Replay {
	if r == nil {
		return nil
	}
	return &store.Replay{Scope: r.scope, Body: r.body, Lifetime: int64(r.req.Lifetime / time.Second), Secret: r.secret.Fingerprint()}
}

// ReplayWith returns the record with the encrypted response; nil for a nil Record.
func (r *Record) ReplayWith(response any) (*store.Replay, error) {
	if r == nil {
		return nil, nil
	}
	sealed, err := r.encrypt(response)
	if err != nil {
		return nil, err
	}
	replay := r.Replay()
	replay.Response, r.stored = sealed, true
	return replay, nil
}

// ValidKey reports whether key is 1 to 255 visible ASCII characters.
func ValidKey(key string) bool {
	for _, c := range []byte(key) {
		if c < 0x21 || c > 0x7e {
			return false
		}
	}
	return len(key) >= 1 && len(key) <= 255
}

// Do lets the effect happen at most once for the request's key. Later calls with the key get the
// stored response. If the effect happened but its response was not stored, render makes the
// response from the current state of the deal. The response is stored as JSON, so T MUST survive
// encoding and decoding. An error of effect or render is returned and not stored.
func Do[T any](ctx context.Context, g *Guard, req Request, effect func(*Record) (T, error), render func() (T, error)) (response T, err error) {
	for range attempts {
		if req.Key == "" {
			response, err = effect(nil)
		} else {
			response, err = call[T]{g, g.record(req), effect, render}.once(ctx)
		}
		if !errors.Is(err, store.ErrSecretReplaced) {
			return response, err
		}
		if err := serversecret.Refresh(ctx, g.store, g.secrets); err != nil {
			return response, err
		}
	}
	return response, problem.New(problem.Unavailable, "the server secret is being rotated and nothing was changed; send the same request again in a few seconds").WithRetryAfter(2).WithCause(err)
}

// Lost is the parameter render of Do for an effect that stores its response itself (ReplayWith).
// The record of such an effect always has a response, so a call of Lost is a bug and returns an error.
func Lost[T any]() (response T, err error) {
	return response, errors.New("the idempotency record has no response, although the effect stores record and response in one transaction")
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

// call is a call of Do with an Idempotency-Key.
type call[T any] struct {
	*Guard
	rec    *Record
	effect func(*Record) (T, error)
	render func() (T, error)
}

// once runs the effect, or finds the response that an earlier call with the same key stored.
// While another call with the same key runs, once waits for at most waitTime.
func (c call[T]) once(ctx context.Context) (none T, err error) {
	name := base64.RawURLEncoding.EncodeToString(c.rec.scope)
	deadline, wait := time.Now().Add(waitTime), pollTime
	for {
		unlock, free := c.redis.Lock(ctx, name, lockTime)
		if free {
			defer unlock()
			return c.run(ctx)
		}
		found, err := c.find(ctx, c.rec)
		if err == nil {
			if response, stored, err := c.open(found); err != nil || stored {
				return response, err
			}
		} else if !errors.Is(err, store.ErrNotFound) {
			return none, err
		}
		if time.Now().After(deadline) {
			return none, problem.New(problem.IdempotencyInProgress, "a request with this %s is still running; send the same request again in a few seconds", problem.KeyHeader)
		}
		select {
		case <-ctx.Done():
			return none, ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, time.Second/2)
		}
	}
}

// run returns the response of the stored record. If there is no record, run runs the effect.
//
// The caller of run holds the lock in Redis. Without Redis, or once the lock has expired,
// another call with this key may run at the same time. The database then lets only one of
// the two calls take effect. So run looks for the record before the effect, and again after
// the effect fails. The other call may be the reason for the failure, for example because it
// has committed for this party. Then run returns the other call's response.
func (c call[T]) run(ctx context.Context) (none T, failure error) {
	for try := 1; ; try++ {
		found, err := c.find(ctx, c.rec)
		switch {
		case err == nil:
			response, stored, err := c.open(found)
			if err != nil || stored {
				return response, err
			}
			if response, err = c.render(); err != nil {
				return none, err
			}
			return c.keep(ctx, response)
		case failure != nil && (try == attempts || !errors.Is(err, store.ErrNotFound) || !errors.Is(failure, store.ErrReplayed)):
			return none, failure
		case !errors.Is(err, store.ErrNotFound):
			return none, err
		case failure != nil: // the insert failed because an expired record still has this scope
			if err := c.store.ExpireReplay(ctx, c.rec.scope); err != nil {
				return none, err
			}
		}
		response, err := c.effect(c.rec)
		if err == nil {
			crash.Point("idempotency.effect")
			if c.rec.stored {
				return response, nil
			}
			return c.keep(ctx, response)
		}
		failure = err
	}
}

// find returns the stored record, or store.ErrNotFound, and switches rec to the secret of the record.
func (g *Guard) find(ctx context.Context, rec *Record) (store.Replay, error) {
	found, err := g.store.FindReplay(ctx, rec.scope, rec.former)
	if err == nil && !bytes.Equal(found.Scope, rec.scope) {
		for _, one := range g.secrets.All() {
			if bytes.Equal(found.Scope, rec.req.scope(one)) {
				rec.under(one)
			}
		}
	}
	return found, err
}

// open returns the response of a stored record, if it has one.
func (c call[T]) open(found store.Replay) (response T, stored bool, err error) {
	if !hmac.Equal(found.Body, c.rec.body) {
		return response, false, problem.New(problem.IdempotencyKeyReused, "this %s was used with another body; send the same body to replay its response, or a new key for a new request", problem.KeyHeader)
	}
	if found.Response == nil {
		return response, false, nil
	}
	return response, true, c.rec.decrypt(found.Response, &response)
}

// keep stores the response, unless another call with the key stored one first. It returns the
// stored response.
func (c call[T]) keep(ctx context.Context, response T) (T, error) {
	sealed, err := c.rec.encrypt(response)
	if err != nil {
		return response, err
	}
	stored, err := c.store.SetResponse(context.WithoutCancel(ctx), c.rec.scope, sealed)
	switch {
	case errors.Is(err, store.ErrNotFound): // the record expired, or was deleted when the API key was used
		return response, nil
	case err != nil || bytes.Equal(stored, sealed):
		return response, err
	}
	var first T
	err = c.rec.decrypt(stored, &first)
	return first, err
}

// encrypt returns the stored form of a response. decrypt needs the Idempotency-Key, caller and
// scope of this record.
func (r *Record) encrypt(response any) ([]byte, error) {
	text, err := web.Encode(response)
	if err != nil {
		return nil, err
	}
	return r.secret.Encrypt(text, []byte(r.req.Key), []byte(r.req.Caller), r.scope)
}

func (r *Record) decrypt(sealed []byte, response any) error {
	text, err := r.secret.Decrypt(sealed, []byte(r.req.Key), []byte(r.req.Caller), r.scope)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, response)
}
