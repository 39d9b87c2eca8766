package signing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

var (
	errClosed = errors.New("the signer is closed")
	errBusy   = errors.New("all slots stayed busy")
	errDown   = errors.New("the provider went down while the call waited for a slot")
)

// calls bounds the concurrent calls of a provider.
type calls struct {
	provider provider.Provider
	slots    chan struct{}
	seconds  prometheus.Observer // of each call; nil: not measured
	closing  sync.Once
	closed   chan struct{}
}

func newCalls(p provider.Provider, concurrency int, seconds prometheus.Observer) *calls {
	return &calls{provider: p, slots: make(chan struct{}, concurrency), seconds: seconds, closed: make(chan struct{})}
}

// sign calls the provider once and returns when ctx ends, even if the provider
// ignores ctx. asked is how long the provider had; 0: it was not called, because no
// slot was free (errBusy) or down is true once one is (errDown).
func (c *calls) sign(ctx context.Context, data []byte, down func() bool) (signature []byte, asked time.Duration, err error) {
	select {
	case <-c.closed:
		return nil, 0, errClosed
	default:
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.closed:
		return nil, 0, errClosed
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("%w: %w", errBusy, ctx.Err())
	}
	if down() {
		<-c.slots
		return nil, 0, errDown
	}
	begun := time.Now()
	done := make(chan struct{})
	var made []byte
	var failed error
	// The call keeps its slot until the provider answers, so a provider that hangs
	// cannot accumulate more calls than there are slots.
	go func() {
		defer func() { <-c.slots }()
		defer close(done)
		made, failed = c.provider.Sign(ctx, data)
		if c.seconds != nil {
			c.seconds.Observe(time.Since(begun).Seconds())
		}
	}()
	select {
	case <-ctx.Done():
	case <-done:
		if failed == nil || ctx.Err() == nil {
			return made, time.Since(begun), failed
		}
	}
	return nil, time.Since(begun), fmt.Errorf("no answer: %w", ctx.Err())
}

// close waits for running calls, at most for patience, and closes the provider.
// sign fails from then on.
func (c *calls) close(patience time.Duration) error {
	var err error
	c.closing.Do(func() {
		close(c.closed)
		end := time.After(patience)
		for range cap(c.slots) {
			select {
			case c.slots <- struct{}{}: // never released
			case <-end:
				err = fmt.Errorf("a call is still running after %v; its resources are released when the process ends", patience)
				return
			}
		}
		err = c.provider.Close()
	})
	return err
}

// retry calls once up to tries times, until it succeeds, again refuses its error,
// or ctx ends. It returns the result of the last call.
func retry[T any](ctx context.Context, tries uint, again func(error) bool, once func() (T, error)) (T, error) {
	var last error // backoff returns ctx's error if ctx ends between two calls
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

// The pauses between tries are uniform in [0, ceiling), so that callers that failed
// together do not return together. The ceiling doubles from first to last.
const (
	firstCeiling = 100 * time.Millisecond
	lastCeiling  = 800 * time.Millisecond
)

// fullJitter returns pauses in [0, ceiling): an interval of half the ceiling that
// varies by its whole length.
func fullJitter() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: firstCeiling / 2, MaxInterval: lastCeiling / 2, Multiplier: 2, RandomizationFactor: 1,
	}
}
