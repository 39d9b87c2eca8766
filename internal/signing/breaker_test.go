package signing

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	key := newP256(t)
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		var calls atomic.Int32
		signer := mustSigner(t, &fake{key, func(ctx context.Context, k *ecdsa.PrivateKey, d []byte) ([]byte, error) {
			calls.Add(1)
			if down.Load() {
				return nil, provider.Transient(errors.New("connection refused by the vault"))
			}
			return honest(ctx, k, d)
		}}, defaultLimits)
		down.Store(true)
		for range 20 {
			if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("Sign while the provider is down: %v, want ErrUnavailable", err)
			}
		}
		if n := calls.Load(); n != int32(defaultLimits.trip) {
			t.Errorf("%d calls reached the provider, want %d", n, defaultLimits.trip)
		}
		begun := time.Now()
		_, err := signer.Sign(t.Context(), [32]byte{1})
		if time.Since(begun) != 0 || !strings.Contains(err.Error(), "refused by the vault") {
			t.Errorf("Sign with the breaker open: after %v, %v; want the cause at once", time.Since(begun), err)
		}
		time.Sleep(defaultLimits.open + time.Millisecond)
		if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Sign that probes a provider that is down: %v, want ErrUnavailable", err)
		}
		if n := calls.Load(); n != int32(defaultLimits.trip)+1 {
			t.Errorf("%d calls after one probe, want one more than %d", n, defaultLimits.trip)
		}
		down.Store(false)
		time.Sleep(defaultLimits.open + time.Millisecond)
		for range 3 {
			if _, err := signer.Sign(t.Context(), [32]byte{1}); err != nil {
				t.Errorf("Sign once the provider is back: %v, want a signature", err)
			}
		}
	})
}

func TestBreakerOpensOnAHang(t *testing.T) {
	key := newP256(t)
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		signer := mustSigner(t, &fake{key, func(ctx context.Context, k *ecdsa.PrivateKey, d []byte) ([]byte, error) {
			if back.Load() {
				return honest(ctx, k, d)
			}
			return stuck(ctx, k, d)
		}}, defaultLimits)
		took := make(chan time.Duration, 3*defaultLimits.concurrency)
		sign := func() time.Duration {
			begun := time.Now()
			if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, ErrUnavailable) {
				t.Errorf("Sign while the provider hangs: %v, want ErrUnavailable", err)
			}
			return time.Since(begun)
		}
		for range cap(took) {
			go func() { took <- sign() }()
		}
		for range cap(took) {
			if d := <-took; d > defaultLimits.attempt+lastCeiling {
				t.Errorf("a caller waited %v, want at most %v", d, defaultLimits.attempt+lastCeiling)
			}
		}
		if d := sign(); d != 0 {
			t.Errorf("Sign took %v with the breaker open, want no time", d)
		}
		time.Sleep(defaultLimits.open + time.Millisecond)
		if d := sign(); d > defaultLimits.attempt+lastCeiling {
			t.Errorf("the probe took %v, want at most %v", d, defaultLimits.attempt+lastCeiling)
		}
		if d := sign(); d != 0 {
			t.Errorf("Sign took %v after the failed probe, want no time", d)
		}
		back.Store(true)
		time.Sleep(defaultLimits.open + time.Millisecond)
		if _, err := signer.Sign(t.Context(), [32]byte{1}); err != nil {
			t.Errorf("Sign once the provider answers again: %v, want a signature", err)
		}
	})
}

func TestBreakerCountsOnlyTheProvider(t *testing.T) {
	key := newP256(t)
	synctest.Test(t, func(t *testing.T) {
		denied := errors.New("denied")
		var deny atomic.Bool
		signer := mustSigner(t, &fake{key, func(ctx context.Context, k *ecdsa.PrivateKey, d []byte) ([]byte, error) {
			if deny.Load() {
				return nil, denied
			}
			return stuck(ctx, k, d)
		}}, defaultLimits)
		for range 3 * defaultLimits.trip {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if _, err := signer.Sign(ctx, [32]byte{1}); !errors.Is(err, context.Canceled) {
				t.Fatalf("Sign with a cancelled context: %v, want context.Canceled", err)
			}
		}
		for range 3 * defaultLimits.trip {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if _, err := signer.Sign(ctx, [32]byte{1}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Sign with too short a deadline: %v, want context.DeadlineExceeded", err)
			}
			cancel()
		}
		deny.Store(true)
		for range 3 * defaultLimits.trip {
			if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, denied) || errors.Is(err, ErrUnavailable) {
				t.Fatalf("Sign without permission: %v, want only the provider's refusal", err)
			}
		}
		crowd := defaultLimits
		crowd.concurrency = 1
		slow := mustSigner(t, &fake{key, func(ctx context.Context, k *ecdsa.PrivateKey, d []byte) ([]byte, error) {
			time.Sleep(crowd.attempt - time.Millisecond)
			return honest(ctx, k, d)
		}}, crowd)
		for range 3 * crowd.trip {
			go func() { _, _ = slow.Sign(t.Context(), [32]byte{1}) }()
		}
		time.Sleep(crowd.deadline)
		if slow.breaker.circuit.State() != gobreaker.StateClosed {
			t.Error("many callers opened the breaker of a provider that answers, want it closed")
		}
		time.Sleep(crowd.deadline)
	})
}
