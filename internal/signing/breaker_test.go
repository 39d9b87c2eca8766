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

	"github.com/fairpact/fairpact/internal/signing/transient"
)

// A provider that fails is left alone after a few calls, and asked again by one
// probe at a time; when that succeeds everybody may.
func TestBreaker(t *testing.T) {
	key := newP256(t)
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		var calls atomic.Int32
		f := &fake{key, func(ctx context.Context, k *ecdsa.PrivateKey, d [32]byte) ([]byte, error) {
			calls.Add(1)
			if down.Load() {
				return nil, transient.Error(errors.New("connection refused by the vault"))
			}
			return honest(ctx, k, d)
		}}
		signer, err := newSigner(t.Context(), f, fakeHome, defaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		down.Store(true)
		for range 20 {
			if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("down: %v", err)
			}
		}
		if n := calls.Load(); n != int32(defaultLimits.trip) {
			t.Errorf("%d calls reached the provider, want %d", n, defaultLimits.trip)
		}
		begun := time.Now()
		_, err = signer.Sign(t.Context(), [32]byte{1})
		if time.Since(begun) != 0 || !strings.Contains(err.Error(), "refused by the vault") {
			t.Errorf("open: after %v, %v; want the cause at once", time.Since(begun), err)
		}
		time.Sleep(defaultLimits.open + time.Millisecond)
		if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("probe: %v", err)
		}
		if n := calls.Load(); n != int32(defaultLimits.trip)+1 {
			t.Errorf("%d calls after one probe, want one more than %d", n, defaultLimits.trip)
		}
		down.Store(false)
		time.Sleep(defaultLimits.open + time.Millisecond)
		for range 3 {
			if _, err := signer.Sign(t.Context(), [32]byte{1}); err != nil {
				t.Errorf("it is back: %v", err)
			}
		}
	})
}

// A provider that hangs holds up its callers once; nobody waits longer than the
// deadline, and after the breaker has opened all but the probe are answered at
// once, though every slot is still taken.
func TestBreakerOfAHang(t *testing.T) {
	key := newP256(t)
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		f := &fake{key, func(ctx context.Context, k *ecdsa.PrivateKey, d [32]byte) ([]byte, error) {
			<-wake // ignores its context
			return honest(ctx, k, d)
		}}
		signer, err := newSigner(t.Context(), f, fakeHome, defaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		took := make(chan time.Duration, 100)
		for range cap(took) { // three times as many as slots
			go func() {
				begun := time.Now()
				if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, ErrUnavailable) {
					t.Errorf("%v", err)
				}
				took <- time.Since(begun)
			}()
		}
		for range cap(took) {
			if d := <-took; d > defaultLimits.attempt+lastCeiling {
				t.Errorf("one waited %v", d)
			}
		}
		begun := time.Now()
		if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, ErrUnavailable) || time.Since(begun) != 0 {
			t.Errorf("open: after %v, %v", time.Since(begun), err)
		}
		// All slots are stuck: the probe fails within an attempt and opens it again.
		time.Sleep(defaultLimits.open + time.Millisecond)
		begun = time.Now()
		if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, ErrUnavailable) || time.Since(begun) > defaultLimits.attempt+lastCeiling {
			t.Errorf("probe: after %v, %v", time.Since(begun), err)
		}
		close(wake)
		time.Sleep(defaultLimits.open + time.Millisecond)
		if _, err := signer.Sign(t.Context(), [32]byte{1}); err != nil {
			t.Errorf("it woke: %v", err)
		}
	})
}

// Neither callers that go away nor refusals say that the provider is down.
func TestBreakerCountsHealthAlone(t *testing.T) {
	key := newP256(t)
	synctest.Test(t, func(t *testing.T) {
		denied := errors.New("denied")
		var deny atomic.Bool
		f := &fake{key, func(ctx context.Context, k *ecdsa.PrivateKey, d [32]byte) ([]byte, error) {
			if deny.Load() {
				return nil, denied
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		signer, err := newSigner(t.Context(), f, fakeHome, defaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 * defaultLimits.trip {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if _, err := signer.Sign(ctx, [32]byte{1}); !errors.Is(err, context.Canceled) {
				t.Fatalf("canceled: %v", err)
			}
		}
		for range 3 * defaultLimits.trip { // a caller with no time to spare
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if _, err := signer.Sign(ctx, [32]byte{1}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("hurried: %v", err)
			}
			cancel()
		}
		deny.Store(true)
		for range 3 * defaultLimits.trip {
			if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, denied) || errors.Is(err, ErrUnavailable) {
				t.Fatalf("denied: %v", err)
			}
		}
	})
}

// What opened the circuit is quoted, and not what was still under way and says
// nothing of the provider.
func TestBreakerQuotesWhatCounted(t *testing.T) {
	b := newBreaker("fake", defaultLimits)
	fails := func(err error) func() (string, error) { return func() (string, error) { return "", err } }
	_, _ = b.call(func() (string, error) {
		for range defaultLimits.trip {
			_, _ = b.call(fails(transient.Error(errors.New("connection refused by the vault"))))
		}
		return "", noVerdict{transient.Error(errors.New("no answer to one in a hurry"))}
	})
	if _, err := b.call(fails(nil)); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "refused by the vault") {
		t.Errorf("%v, want ErrUnavailable with the vault's words", err)
	}
}

func TestClose(t *testing.T) {
	signer := mustSigner(t, &fake{newP256(t), honest}, time.Minute, 4)
	if err := signer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := signer.Close(); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, errClosed) {
		t.Errorf("after closing: %v", err)
	}
}
