package escrow

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/platform/redis"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	// ReplayLifetime is how long a response is replayed.
	ReplayLifetime = 24 * time.Hour
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

	_ = uint64(waitTime - lockTime - pollTime - 1) // compiles only if lockTime + pollTime is less than waitTime
)

// Guard makes a POST repeatable. A second POST with the same Idempotency-Key and body gets the stored
// response. With another body it gets a 409 (SPEC 4, 7.4).
//
// The effect of a POST and its idempotency record are written in one transaction, so that both exist
// or neither does. If the response is known only after the effect, a second step (Record.Keep) stores
// the response. If the process dies before this second step, a replay finds a record without a
// response (Record.Lost), and renders the response from the deal. Only a successful response is stored.
// A refused call changed nothing, so it may be corrected and sent again with the same key.
//
// A record's primary key is its scope: a MAC of caller, method, path and Idempotency-Key under a server
// secret. A call looks for its record under all server secrets of the process, and writes its record
// under the secret in force, which the database names. If another secret comes into force in between,
// the database refuses the write (store.ErrSecretReplaced), and the call starts again. For a commitment
// or a cancellation the database does not check the secret: a deal accepts these only once, with or
// without a record.
//
//	fault                                    a retry
//	crash before the effect's commit         finds no record, runs the effect
//	crash after the effect's commit          finds a record, replays or renders the response
//	Redis down, emptied or restarted         has no second effect: the database stores one record per scope
//	database down                            gets 503 and has no effect
type Guard struct {
	store   *store.Store
	redis   *redis.Redis
	secrets *sealing.Secrets
}

// NewGuard returns a Guard that stores records in s, encrypts responses under the server secrets, and
// keeps the locks of running calls in r.
func NewGuard(s *store.Store, r *redis.Redis, secrets *sealing.Secrets) *Guard {
	return &Guard{store: s, redis: r, secrets: secrets}
}

// KeyedCall is a call of REST or MCP with its Idempotency-Key.
type KeyedCall struct {
	Key      string // value of Idempotency-Key (MCP: idempotency_key); empty: none, the call has no record
	Caller   string // the API key or invite token, or the client's address if there is none
	Method   string
	Path     string
	Body     map[string]any
	Lifetime time.Duration
}

// Record is the idempotency record of a call. The effect stores it in the transaction that makes the
// call's change (Replay, ReplayWith). While neither Lost nor Answered, the caller of Begin runs the
// effect, and passes its outcome to Keep.
type Record struct {
	Lost     bool // an earlier call took effect, but its response was not stored: render it from the deal's present state
	Answered bool // the record has a response (see Answer)

	guard  *Guard
	call   KeyedCall
	secret *sealing.Secret
	scope  []byte
	body   []byte
	former [][]byte // scopes of the same call under the other server secrets of the process
	unlock func()   // ends the lock in Redis; nil: not locked
	tries  int

	response []byte // the encrypted response of another call; nil: the response is that of this call's effect
	atOnce   bool   // the effect stores the response itself (ReplayWith)
}

// Replay returns the record without a response, which is stored later; nil for a call without a key.
func (r *Record) Replay() *store.Replay {
	if r == nil || r.call.Key == "" {
		return nil
	}
	return &store.Replay{Scope: r.scope, Body: r.body, Lifetime: int64(r.call.Lifetime / time.Second), Secret: r.secret.Fingerprint()}
}

// ReplayWith returns the record with the encrypted response; nil for a call without a key.
func (r *Record) ReplayWith(response any) (*store.Replay, error) {
	replay := r.Replay()
	if replay == nil {
		return nil, nil
	}
	sealed, err := r.encrypt(response)
	if err != nil {
		return nil, err
	}
	replay.Response, r.atOnce = sealed, true
	return replay, nil
}

// ValidKey reports whether an Idempotency-Key is 1 to 255 visible ASCII characters.
func ValidKey(key string) bool {
	for _, c := range []byte(key) {
		if c < 0x21 || c > 0x7e {
			return false
		}
	}
	return len(key) >= 1 && len(key) <= 255
}

// Begin returns the record of a call: Answered if an earlier call with the key stored its response. While
// another call with the key runs, Begin waits for at most waitTime, or not at all with a large body. Call End when the call has ended.
func (g *Guard) Begin(ctx context.Context, c KeyedCall) (*Record, error) {
	r := &Record{guard: g, call: c}
	if err := r.begin(ctx); err != nil {
		r.End()
		return nil, err
	}
	return r, nil
}

// End lets the next call with the key run.
func (r *Record) End() {
	if r.unlock != nil {
		r.unlock()
		r.unlock = nil
	}
}

func (r *Record) begin(ctx context.Context) error {
	if r.call.Key == "" {
		return nil
	}
	r.under(r.guard.secrets.Writer())
	r.former = nil
	for _, one := range r.guard.secrets.All() {
		if !bytes.Equal(one.Fingerprint(), r.secret.Fingerprint()) {
			r.former = append(r.former, r.call.scope(one))
		}
	}
	name := base64.RawURLEncoding.EncodeToString(r.scope)
	deadline, wait := time.Now().Add(waitTime), pollTime
	for {
		unlock, free := r.guard.redis.Lock(ctx, name, lockTime)
		if free {
			r.unlock = unlock
		}
		err := r.find(ctx)
		switch {
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return err
		case free || r.Answered:
			return nil
		case time.Now().After(deadline), budget.From(ctx).Large():
			return problem.New(problem.IdempotencyInProgress, "a request with this %s is still running; send the same request again in a few seconds", problem.KeyHeader)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, time.Second/2)
		}
	}
}

// find looks for the stored record, and for its response, or returns store.ErrNotFound. It switches r to
// the secret of the stored record.
func (r *Record) find(ctx context.Context) error {
	r.Lost, r.Answered = false, false
	found, err := r.guard.store.FindReplay(ctx, r.scope, r.former)
	if err != nil {
		return err
	}
	for _, one := range r.guard.secrets.All() {
		if !bytes.Equal(found.Scope, r.scope) && bytes.Equal(found.Scope, r.call.scope(one)) {
			r.under(one)
		}
	}
	if !hmac.Equal(found.Body, r.body) {
		return problem.New(problem.IdempotencyKeyReused, "this %s was used with another body; send the same body to replay its response, or a new key for a new request", problem.KeyHeader)
	}
	r.response, r.Answered, r.Lost = found.Response, found.Response != nil, found.Response == nil
	return nil
}

// Keep takes the outcome of the effect, or of the rendering if Lost. It stores a response, unless another
// call with the key stored one first, or the effect did. After a failure it returns an error, or nil if
// the record is now Lost or Answered, or the effect must run again.
//
// The caller holds the lock in Redis. Without Redis, or once the lock has expired, another call with this
// key may run at the same time. The database then lets only one of the two calls take effect. The other
// call may be the reason for the failure of this one, for example because it has committed for this
// party. So Keep looks for the record again after a failure.
func (r *Record) Keep(ctx context.Context, response any, failure error) error {
	if failure != nil {
		return r.failed(ctx, failure)
	}
	r.Answered = true
	if r.call.Key == "" {
		return nil
	}
	if !r.Lost {
		crash.Point("idempotency.effect")
		if r.atOnce {
			return nil
		}
	}
	sealed, err := r.encrypt(response)
	if err != nil {
		return err
	}
	stored, err := r.guard.store.SetResponse(context.WithoutCancel(ctx), r.scope, sealed)
	switch {
	case errors.Is(err, store.ErrNotFound): // the record expired, or was deleted when the API key was used
		return nil
	case err == nil && !bytes.Equal(stored, sealed):
		r.response = stored
	}
	return err
}

func (r *Record) failed(ctx context.Context, failure error) error {
	if r.call.Key != "" && !r.Lost {
		found := r.find(ctx)
		switch {
		case found == nil || problem.Is(found, problem.IdempotencyKeyReused):
			return found
		case !errors.Is(found, store.ErrNotFound):
			return failure
		}
	}
	r.tries++
	switch last := r.tries == attempts; {
	case errors.Is(failure, store.ErrReplayed) && !last && !r.Lost: // an expired record still has this scope
		return r.guard.store.ExpireReplay(ctx, r.scope)
	case !errors.Is(failure, store.ErrSecretReplaced):
		return failure
	case last:
		return problem.New(problem.Unavailable, "the server secret is being rotated and nothing was changed; send the same request again in a few seconds").WithRetryAfter(2).WithCause(failure)
	}
	if err := r.guard.secrets.Refresh(ctx, r.guard.store); err != nil {
		return err
	}
	r.End()
	r.Lost, r.atOnce = false, false
	return r.begin(ctx)
}

// Answer sets *response, which is the response that Keep got, if another call's response is stored instead.
// The response is stored as JSON, so its type MUST survive encoding and decoding.
func (r *Record) Answer(response any) error {
	if r.response == nil {
		return nil
	}
	text, err := r.secret.Decrypt(r.response, []byte(r.call.Key), []byte(r.call.Caller), r.scope)
	if err != nil {
		return err
	}
	reflect.ValueOf(response).Elem().SetZero()
	return json.Unmarshal(text, response)
}

func (c KeyedCall) scope(secret *sealing.Secret) []byte {
	return secret.MAC([]byte("scope"), []byte(c.Caller), []byte(c.Method), []byte(c.Path), []byte(c.Key))
}

func (r *Record) under(secret *sealing.Secret) {
	r.secret, r.scope, r.body = secret, r.call.scope(secret), secret.MAC([]byte("body"), canon.Encode(r.call.Body))
}

// encrypt returns the stored form of a response. Answer needs the Idempotency-Key, caller and scope of
// this record to decrypt it.
func (r *Record) encrypt(response any) ([]byte, error) {
	text, err := web.Encode(response)
	if err != nil {
		return nil, err
	}
	return r.secret.Encrypt(text, []byte(r.call.Key), []byte(r.call.Caller), r.scope)
}
