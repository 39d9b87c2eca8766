package signing

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sony/gobreaker/v2"

	"github.com/fairpact/fairpact/internal/signing/transient"
)

// breaker keeps callers away from a provider that is down. It counts calls to
// the provider: what passes and what lies counts against it; a refusal (no
// permission, a disabled key) does not, since who refuses is there; and a call
// that its caller gave up says nothing either way.
type breaker struct {
	circuit *gobreaker.CircuitBreaker[string]

	mu    sync.Mutex
	open  chan struct{} // closed while the circuit is not
	cause error         // of the newest failure that counted
}

// noVerdict marks a failure that does not speak against the provider: one that
// came of its caller, who left or had little time.
type noVerdict struct{ error }

func (n noVerdict) Unwrap() error { return n.error }

func newBreaker(scheme string, l limits) *breaker {
	b := &breaker{open: make(chan struct{})}
	gauge := breakerOpen.WithLabelValues(scheme)
	gauge.Set(0)
	countFromZero(scheme)
	b.circuit = gobreaker.NewCircuitBreaker[string](gobreaker.Settings{
		Name:        scheme,
		MaxRequests: 1,
		Timeout:     l.open,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= l.trip },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			b.mu.Lock()
			defer b.mu.Unlock()
			switch {
			case from == gobreaker.StateClosed:
				close(b.open) // wakes all who wait for a slot
				gauge.Set(1)
			case to == gobreaker.StateClosed:
				b.open = make(chan struct{})
				gauge.Set(0)
			}
		},
		IsSuccessful: func(err error) bool { return !failed(err) },
		IsExcluded:   excluded,
	})
	return b
}

// failed reports whether an error speaks against the provider.
func failed(err error) bool { return transient.Is(err) || errors.Is(err, ErrProvider) }

// excluded reports whether an error says nothing either way, however it looks.
func excluded(err error) bool {
	_, mute := errors.AsType[noVerdict](err)
	return mute || errors.Is(err, ErrUnavailable) || errors.Is(err, errClosed)
}

// call runs f unless the provider is known to be down: that is ErrUnavailable,
// at once.
func (b *breaker) call(f func() (string, error)) (string, error) {
	signature, err := b.circuit.Execute(func() (string, error) {
		signature, err := f()
		if failed(err) && !excluded(err) {
			b.mu.Lock()
			b.cause = err
			b.mu.Unlock()
		}
		return signature, err
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return "", fmt.Errorf("%w: %w", ErrUnavailable, b.why())
	}
	return signature, err
}

// opened is closed when the circuit opens; nil, which never is, while a probe
// may go through.
func (b *breaker) opened() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.open:
		return nil
	default:
		return b.open
	}
}

// why says what opened the circuit. The cause is quoted and not wrapped: it was
// another call's.
func (b *breaker) why() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Errorf("not asked, as it failed again and again, at last with: %v", b.cause)
}
