package signing

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

func ask(ctx context.Context, p provider.Provider, data []byte) ([]byte, error) {
	signature, err := p.Sign(ctx, data)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no answer: %w", ctx.Err())
	}
	return signature, err
}

func retry[T any](ctx context.Context, maxTries uint, retryable func(error) bool, call func() (T, error)) (T, error) {
	var last error // the error of the last call; backoff.Retry may return ctx's error instead
	result, err := backoff.Retry(ctx, func() (T, error) {
		var result T
		if result, last = call(); last != nil && !retryable(last) {
			return result, backoff.Permanent(last)
		}
		return result, last
	}, backoff.WithMaxTries(maxTries), backoff.WithBackOff(fullJitter()))
	if err != nil && last != nil {
		err = last
	}
	return result, err
}

// Pauses between tries are random, so that callers that failed together do not retry
// together. The longest possible pause doubles after each try, from firstCeiling up to
// lastCeiling.
const (
	firstCeiling = 100 * time.Millisecond
	lastCeiling  = 800 * time.Millisecond
)

// fullJitter returns a back-off with random pauses between 0 and the longest possible pause.
// The configured interval is half of the longest pause, because RandomizationFactor 1 varies
// each interval by ±100 %.
func fullJitter() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: firstCeiling / 2, MaxInterval: lastCeiling / 2, Multiplier: 2, RandomizationFactor: 1,
	}
}
