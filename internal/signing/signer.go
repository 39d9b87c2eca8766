// Package signing signs digests with the deployment's key, which is in a cloud KMS, an HSM or a
// file. Package keys defines the keys, signatures and key sets.
package signing

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/semaphore"

	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing/provider"
)

var (
	// ErrProvider is returned when a provider's answer does not verify. No part of the answer is returned.
	ErrProvider = errors.New("the provider's answer is not a signature of this digest under the pinned public key")

	// ErrUnavailable is returned when a provider is unreachable, overloaded or too slow.
	ErrUnavailable = errors.New("the key's provider is unavailable")

	errClosed = errors.New("the signer is closed")
)

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/signing")

var (
	callSeconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "fairpact_signing_duration_seconds",
		Help:    "Duration of one signing call to the key's provider. Each retry is a separate call and counts against the provider's quota.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
	}, []string{"provider", "key"})

	requests = telemetry.NewCounterVec("fairpact_signing_requests_total",
		"Requested signatures, by key (deployment, log) and outcome: ok, timeout, unavailable (includes an open breaker), refused, invalid, canceled.", "provider", "key", "outcome")
)

// Values of the label key: who signs certificates and tree heads, and who signs checkpoints.
const deploymentKey, logKey = "deployment", "log"

// startCounting starts each series at 0, because Prometheus sees no increase in a series that starts at 1.
func startCounting(scheme, key string) {
	for _, ending := range []string{"ok", "timeout", "unavailable", "refused", "invalid", "canceled"} {
		requests.WithLabelValues(scheme, key, ending)
	}
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrProvider):
		return "invalid"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, ErrUnavailable), errors.Is(err, errClosed):
		return "unavailable"
	}
	return "refused"
}

type limits struct {
	deadline    time.Duration // of one Sign, including all retries and waits
	attempt     time.Duration // timeout of one call to the provider, including the wait for one of `concurrency` slots
	concurrency int64
	tries       int           // maximum number of calls to the provider for one Sign
	trip        uint32        // consecutive failures that open the breaker
	open        time.Duration // how long the breaker refuses all calls before one call probes the provider
}

// A reveal waits at most timelimits.Issue (3 s) for its certificate, with the append to the log. A cloud
// HSM answers in tens of milliseconds. A call without an answer after 1.5 s counts as failed, which leaves
// time for a second one. TestKeyServiceOutage in e2e/outage measures these times.
var defaultLimits = limits{
	deadline:    timelimits.Sign,
	attempt:     1500 * time.Millisecond,
	concurrency: 32,
	tries:       4,
	trip:        5,
	open:        2 * time.Second,
}

// Signer signs digests with one P-256 key. It is safe for concurrent use.
type Signer struct {
	provider  provider.Provider
	slots     *semaphore.Weighted // one slot for each concurrent call to the provider
	closed    atomic.Bool
	scheme    string    // scheme of the key's URI, and the provider's name in metrics
	key       keys.List // the pinned key: read when the signer is opened, then used to verify every signature
	custody   string
	ephemeral bool
	limits    limits
	breaker   *breaker
}

func newSigner(ctx context.Context, p provider.Provider, s store, l limits) (*Signer, error) {
	key, custody, err := readP256(ctx, p, l)
	if err != nil {
		return nil, err
	}
	startCounting(s.scheme, deploymentKey)
	return &Signer{
		provider:  p,
		slots:     semaphore.NewWeighted(l.concurrency),
		scheme:    s.scheme,
		key:       keys.List{key},
		custody:   custody,
		ephemeral: s.ephemeral,
		limits:    l,
		breaker:   newBreaker(s.scheme, l),
	}, nil
}

// PublicKey returns the label of the public key (SPEC 2.8).
func (s *Signer) PublicKey() string { return s.key[0].Label }

// Custody describes where the key is kept (SPEC 2.8, key_custody).
func (s *Signer) Custody() string { return s.custody }

// Ephemeral reports whether this is a development key (SPEC 2.8, dev_ephemeral_key).
func (s *Signer) Ephemeral() bool { return s.ephemeral }

// Close waits for the running Sign calls, at most for the deadline of one. Afterwards Sign fails.
func (s *Signer) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.limits.deadline)
	defer cancel()
	// Close never releases the slots, so that no later Sign calls the provider.
	if err := errors.Join(s.slots.Acquire(ctx, s.limits.concurrency), s.provider.Close()); err != nil {
		return fmt.Errorf("close the signer (%s): %w", s.custody, err)
	}
	return nil
}

// Sign returns the signature of a SHA-256 digest as r‖s with low s (SPEC 5.6), verified with the pinned
// public key. After an invalid answer Sign calls the provider once more, because a bit may have flipped on
// the way (AWS and PKCS#11 have no checksum). Sign retries transient failures within the deadline. The
// error wraps
//   - ErrProvider after two invalid answers;
//   - ErrUnavailable if the provider is down or transient failures continue, and also
//     context.DeadlineExceeded if the provider took too long;
//   - the context's error if the caller gave up.
//
// Any other error means that the provider refused, or that the Signer is closed.
func (s *Signer) Sign(ctx context.Context, digest [32]byte) (string, error) {
	budget.From(ctx).Rest()
	ctx, span := tracer.Start(ctx, "sign", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("fairpact.key_provider", s.scheme)))
	defer span.End()
	signature, err := s.signRetrying(ctx, digest)
	requests.WithLabelValues(s.scheme, deploymentKey, outcome(err)).Inc()
	if err != nil {
		span.SetStatus(codes.Error, outcome(err))
		return "", fmt.Errorf("sign: the signer (%s): %w", s.custody, err)
	}
	return signature, nil
}

func (s *Signer) signRetrying(caller context.Context, digest [32]byte) (string, error) {
	ctx, cancel := context.WithTimeout(caller, s.limits.deadline)
	defer cancel()
	invalid := 0
	signature, err := retry(ctx, s.limits.tries, func(err error) bool {
		return ctx.Err() == nil && (provider.IsTransient(err) || errors.Is(err, ErrProvider) && invalid < 2)
	}, func() (string, error) {
		signature, err := s.breaker.call(func() (string, error) { return s.signOnce(ctx, digest) })
		if errors.Is(err, ErrProvider) {
			invalid++
		}
		return signature, err
	})
	switch {
	case err == nil:
		return signature, nil
	case caller.Err() != nil:
		return "", fmt.Errorf("the caller gave up: %w", caller.Err())
	case provider.IsTransient(err):
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return "", err
}

func (s *Signer) signOnce(caller context.Context, digest [32]byte) (string, error) {
	if err := caller.Err(); err != nil {
		return "", uncounted{err}
	}
	if s.closed.Load() {
		return "", errClosed
	}
	ctx, cancel := context.WithTimeout(caller, s.limits.attempt)
	defer cancel()
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return "", uncounted{provider.Transient(fmt.Errorf("all slots for concurrent signatures stayed busy: %w", err))}
	}
	defer s.slots.Release(1)
	asked := time.Now()
	der, err := ask(ctx, s.provider, digest[:], callSeconds.WithLabelValues(s.scheme, deploymentKey))
	took := time.Since(asked)
	switch {
	case err == nil:
	case errors.Is(caller.Err(), context.Canceled):
		return "", uncounted{caller.Err()}
	case ctx.Err() == nil:
		return "", err
	case took < s.limits.attempt/2: // the provider had too little time to answer, so the breaker does not count this failure
		return "", uncounted{provider.Transient(err)}
	default:
		return "", provider.Transient(err)
	}
	signature, err := keys.FromDER(der)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrProvider, err)
	}
	if _, err := s.key.SignedBy(digest, signature); err != nil {
		return "", ErrProvider
	}
	return signature, nil
}

func ask(ctx context.Context, p provider.Provider, data []byte, seconds prometheus.Observer) ([]byte, error) {
	asked := time.Now()
	signature, err := p.Sign(ctx, data)
	seconds.Observe(time.Since(asked).Seconds())
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no answer: %w", ctx.Err())
	}
	return signature, err
}
