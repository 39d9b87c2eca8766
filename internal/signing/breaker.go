package signing

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sony/gobreaker/v2"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

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
		Name:        scheme,
		MaxRequests: 1,
		Timeout:     l.open,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= l.trip },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch {
			case from == gobreaker.StateClosed:
				gauge.Set(1)
			case to == gobreaker.StateClosed:
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

func (b *breaker) closed() bool { return b.circuit.State() == gobreaker.StateClosed }

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
