package signing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/sony/gobreaker/v2"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

// Pauses between tries are random, so that callers that failed together do not retry
// together. The longest possible pause doubles after each try.
const (
	firstCeiling = 100 * time.Millisecond
	lastCeiling  = 800 * time.Millisecond
)

// retry returns the result of the last call. It calls at most `tries` times.
func retry[T any](ctx context.Context, tries int, retryable func(error) bool, call func() (T, error)) (T, error) {
	for ceiling := firstCeiling; ; ceiling = min(2*ceiling, lastCeiling) {
		result, err := call()
		if tries--; err == nil || tries == 0 || !retryable(err) {
			return result, err
		}
		select {
		case <-ctx.Done():
			return result, err
		case <-time.After(rand.N(ceiling)):
		}
	}
}

var breakerOpen = promauto.NewGaugeVec(prometheus.GaugeOpts{
	Name: "fairpact_signing_breaker_open",
	Help: "1 while the circuit breaker is open: several calls to the key's provider failed in a row, so signing fails immediately, without a call to the provider.",
}, []string{"provider"})

// breaker is a circuit breaker: while a provider is down, calls fail without reaching it. Transient
// failures and invalid signatures count as failures. A refusal (no permission, a disabled key) does
// not, because the provider is up.
type breaker struct {
	circuit *gobreaker.CircuitBreaker[string]
	cause   atomic.Value // string: the text of the newest failure that counted
}

// uncounted marks a failure that says nothing about the provider: the caller gave up or
// allowed too little time, or all slots for concurrent calls stayed busy.
type uncounted struct{ error }

func (u uncounted) Unwrap() error { return u.error }

func newBreaker(scheme string, l limits) *breaker {
	gauge := breakerOpen.WithLabelValues(scheme)
	gauge.Set(0)
	return &breaker{circuit: gobreaker.NewCircuitBreaker[string](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     l.open,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= l.trip },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch gobreaker.StateClosed {
			case from:
				gauge.Set(1)
			case to:
				gauge.Set(0)
			}
		},
		IsSuccessful: func(err error) bool { return !failed(err) },
		IsExcluded:   excluded,
	})}
}

func failed(err error) bool {
	return !excluded(err) && (provider.IsTransient(err) || errors.Is(err, ErrProvider))
}

func excluded(err error) bool {
	_, is := errors.AsType[uncounted](err)
	return is || errors.Is(err, errClosed)
}

// call runs f if the breaker permits it. Otherwise f does not run, and the error wraps
// ErrUnavailable.
func (b *breaker) call(f func() (string, error)) (string, error) {
	signature, err := b.circuit.Execute(func() (string, error) {
		signature, err := f()
		if failed(err) {
			b.cause.Store(err.Error())
		}
		return signature, err
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		// The cause is the error of an earlier call. So the returned error shows the cause's text
		// but does not wrap the cause.
		return "", fmt.Errorf("%w: the provider was not called, because it failed several times in a row; the last failure: %v", ErrUnavailable, b.cause.Load())
	}
	return signature, err
}
