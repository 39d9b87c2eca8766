// Package signing holds the deployment's key: it signs digests with it, wherever
// it lives, and verifies signatures under it and under the keys it replaced.
//
// Labels and signatures are text. `es256` is ECDSA over P-256: the key is
// compressed SEC1 in hex, the signature raw r‖s in hex with s in the lower half
// of the order. `ed25519` verifies old certificates only; nothing here signs
// with it.
package signing

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairpact/fairpact/internal/signing/transient"
)

var (
	// ErrProvider marks an answer of a provider that is not a signature of the
	// digest under the pinned public key. Nothing of such an answer is returned.
	ErrProvider = errors.New("the provider's answer is not a signature of this digest under the pinned public key")

	// ErrUnavailable marks a provider that is out of reach, overloaded or too
	// slow: the same call may succeed later.
	ErrUnavailable = errors.New("the key's provider is out of reach")

	errClosed = errors.New("the signer is closed")
)

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/signing")

// Signer signs digests with one key. It is safe for concurrent use.
type Signer struct {
	provider  Provider
	scheme    string           // of the URI: the provider's name in metrics
	public    *ecdsa.PublicKey // pinned when the signer opened
	label     string
	custody   string
	ephemeral bool
	limits    limits
	slots     chan struct{}
	breaker   *breaker
	closing   sync.Once
	closed    chan struct{}
}

func newSigner(ctx context.Context, p Provider, h home, l limits) (*Signer, error) {
	public, label, custody, err := readKey(ctx, p, l)
	if err != nil {
		return nil, err
	}
	return &Signer{
		provider:  p,
		scheme:    h.scheme,
		public:    public,
		label:     label,
		custody:   custody,
		ephemeral: h.ephemeral,
		limits:    l,
		slots:     make(chan struct{}, l.concurrency),
		breaker:   newBreaker(h.scheme, l),
		closed:    make(chan struct{}),
	}, nil
}

// PublicKey returns the verifying key with its label: `es256:` and 66 hex digits, the
// compressed SEC1 form (SPEC 2.8).
func (s *Signer) PublicKey() string { return s.label }

// Custody returns in words where the key lives (SPEC 2.8, key_custody).
func (s *Signer) Custody() string { return s.custody }

// Ephemeral reports whether this is a development key (SPEC 2.8,
// dev_ephemeral_key).
func (s *Signer) Ephemeral() bool { return s.ephemeral }

// Close waits for the calls that are under way, at most the time that one may
// take, and gives back what the provider holds. Sign fails from then on.
func (s *Signer) Close() error {
	var err error
	s.closing.Do(func() {
		close(s.closed)
		patience := time.After(s.limits.deadline)
		for range cap(s.slots) {
			select {
			case s.slots <- struct{}{}: // and never given back
			case <-patience:
				err = fmt.Errorf("close the signer (%s): a call is still under way after %v; what it holds is left to the end of the process", s.custody, s.limits.deadline)
				return
			}
		}
		err = s.provider.Close()
	})
	return err
}

// Sign returns the signature of a SHA-256 digest as `es256:` and 128 hex digits,
// r‖s with low s (SPEC 5.6). Two signatures of one digest differ.
//
// What it returns has been verified with the public key that was pinned when the
// signer opened. An answer that does not verify is asked for once more, as a bit
// that flipped on its way looks no different (AWS and PKCS#11 have no checksum);
// two in a row are ErrProvider and fail the call. Failures that pass
// (throttling, 5xx, a broken connection, damage on the way) are tried again
// within the deadline; what is left then, or a provider known to be down, is
// ErrUnavailable. A provider that took too long is both ErrUnavailable and
// context.DeadlineExceeded; where the caller gave up it is the context's own
// error. What the provider refuses for good (no permission, a disabled key) is
// neither and says what to correct.
func (s *Signer) Sign(ctx context.Context, digest [32]byte) (string, error) {
	ctx, span := tracer.Start(ctx, "sign", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("fairpact.key_provider", s.scheme)))
	defer span.End()
	signature, err := s.signRetrying(ctx, digest)
	requests.WithLabelValues(s.scheme, outcome(err)).Inc()
	if err != nil {
		span.SetStatus(codes.Error, outcome(err))
		return "", fmt.Errorf("sign: the signer (%s): %w", s.custody, err)
	}
	return signature, nil
}

func (s *Signer) signRetrying(caller context.Context, digest [32]byte) (string, error) {
	ctx, cancel := context.WithTimeout(caller, s.limits.deadline)
	defer cancel()
	lies := 0
	signature, err := retry(ctx, s.limits.tries, func(err error) bool {
		return ctx.Err() == nil && (transient.Is(err) || errors.Is(err, ErrProvider) && lies < 2)
	}, func() (string, error) {
		signature, err := s.breaker.call(func() (string, error) { return s.signOnce(ctx, digest) })
		if errors.Is(err, ErrProvider) {
			lies++
		}
		return signature, err
	})
	switch {
	case err == nil:
		return signature, nil
	case caller.Err() != nil:
		return "", fmt.Errorf("the caller gave up: %w", caller.Err())
	case transient.Is(err):
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return "", err
}

// retry calls once, at most tries times, until it succeeds, its error is not worth
// another try, or ctx ends. The error is that of the last call.
func retry[T any](ctx context.Context, tries uint, again func(error) bool, once func() (T, error)) (T, error) {
	var last error // backoff returns the context's end where it waited for the next try
	result, err := backoff.Retry(ctx, func() (T, error) {
		var result T
		if result, last = once(); last != nil && !again(last) {
			return result, backoff.Permanent(last)
		}
		return result, last
	}, backoff.WithMaxTries(tries), backoff.WithBackOff(fullJitter()))
	if err != nil && last != nil {
		err = last
	}
	return result, err
}

// fullJitter draws each pause from all of [0, ceiling): an interval of half the
// ceiling, give or take all of itself.
func fullJitter() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: firstCeiling / 2, MaxInterval: lastCeiling / 2, Multiplier: 2, RandomizationFactor: 1,
	}
}

// signOnce calls the provider once. Its error is transient, ErrProvider, a
// refusal of the provider's, or noVerdict where the caller gave up.
func (s *Signer) signOnce(caller context.Context, digest [32]byte) (string, error) {
	ctx, cancel := context.WithTimeout(caller, s.limits.attempt)
	defer cancel()
	if err := caller.Err(); err != nil {
		return "", noVerdict{err}
	}
	opened := s.breaker.opened()
	select {
	case <-s.closed:
		return "", errClosed
	default:
	}
	select {
	case s.slots <- struct{}{}:
	case <-s.closed:
		return "", errClosed
	case <-opened:
		return "", fmt.Errorf("%w: %w", ErrUnavailable, s.breaker.why())
	case <-ctx.Done():
		return "", s.tooSlow(caller, opened != nil, fmt.Errorf("all %d slots stayed busy: %w", cap(s.slots), ctx.Err()))
	}

	type answer struct {
		der []byte
		err error
	}
	answered := make(chan answer, 1)
	begun := time.Now()
	// A goroutine, for some providers call into code that ignores its context. The
	// slot is held until the provider is truly done, so a stuck one cannot pile
	// up more calls than there are slots.
	go func() {
		defer func() { <-s.slots }()
		der, err := s.provider.Sign(ctx, digest)
		callSeconds.WithLabelValues(s.scheme).Observe(time.Since(begun).Seconds())
		answered <- answer{der, err}
	}()

	select {
	case <-ctx.Done():
		return "", s.tooSlow(caller, time.Since(begun) < s.limits.attempt/2, fmt.Errorf("no answer: %w", ctx.Err()))
	case a := <-answered:
		switch {
		case a.err != nil && ctx.Err() != nil:
			return "", s.tooSlow(caller, time.Since(begun) < s.limits.attempt/2, fmt.Errorf("no answer: %w", ctx.Err()))
		case a.err != nil:
			return "", a.err
		}
		r, sLow, err := parseDER(a.der)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrProvider, err)
		}
		if !ecdsa.Verify(s.public, digest[:], r, sLow) {
			return "", ErrProvider
		}
		return formatES256(r, sLow), nil
	}
}

// tooSlow is the error of an attempt that had no answer when its context ended.
// It speaks against the provider unless the caller went away or left it little
// time, or, short, the provider was hardly asked.
func (s *Signer) tooSlow(caller context.Context, short bool, err error) error {
	if errors.Is(caller.Err(), context.Canceled) {
		return noVerdict{caller.Err()}
	}
	if short {
		return noVerdict{transient.Error(err)}
	}
	return transient.Error(err)
}
