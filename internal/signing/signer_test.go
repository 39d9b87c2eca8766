package signing

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/asn1"
	"errors"
	"math/big"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func newP256(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func mustOpen(t *testing.T, uri string) *Signer {
	t.Helper()
	signer, err := Open(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// newDev returns the signer of a new key.
func newDev(t *testing.T) *Signer {
	t.Helper()
	return mustOpen(t, "dev://"+t.TempDir()+"/key.pem")
}

// fake is a provider whose answers a test chooses.
type fake struct {
	key    *ecdsa.PrivateKey
	answer func(ctx context.Context, key *ecdsa.PrivateKey, digest [32]byte) ([]byte, error)
}

func (f *fake) Key(context.Context) (*ecdsa.PublicKey, string, error) {
	return &f.key.PublicKey, "fake", nil
}
func (f *fake) Sign(ctx context.Context, digest [32]byte) ([]byte, error) {
	return f.answer(ctx, f.key, digest)
}
func (f *fake) Close() error { return nil }

var fakeHome = home{scheme: "fake"}

func honest(_ context.Context, key *ecdsa.PrivateKey, digest [32]byte) ([]byte, error) {
	return ecdsa.SignASN1(rand.Reader, key, digest[:])
}

type integers struct{ R, S *big.Int }

// reshaped signs honestly and then lets change rewrite the answer.
func reshaped(change func(integers) any) func(context.Context, *ecdsa.PrivateKey, [32]byte) ([]byte, error) {
	return func(ctx context.Context, key *ecdsa.PrivateKey, digest [32]byte) ([]byte, error) {
		der, err := honest(ctx, key, digest)
		if err != nil {
			return nil, err
		}
		var sig integers
		if _, err := asn1.Unmarshal(der, &sig); err != nil {
			return nil, err
		}
		return asn1.Marshal(change(sig))
	}
}

func TestHighSIsBroughtLow(t *testing.T) {
	p := &fake{newP256(t), reshaped(func(sig integers) any {
		if sig.S.Cmp(halfOrder) <= 0 {
			sig.S = new(big.Int).Sub(order, sig.S)
		}
		return sig
	})}
	signer := mustSigner(t, p, time.Minute, 4)
	keys, err := NewKeySet(signer.PublicKey(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range byte(50) {
		digest := [32]byte{i}
		signature, err := signer.Sign(t.Context(), digest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keys.SignedBy(digest, signature); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMisbehavingProviders(t *testing.T) {
	type integersAndMore struct {
		R, S *big.Int
		More int
	}
	unavailable := errors.New("the vault is sealed")
	for name, c := range map[string]struct {
		answer func(context.Context, *ecdsa.PrivateKey, [32]byte) ([]byte, error)
		want   error
	}{
		"nothing": {func(context.Context, *ecdsa.PrivateKey, [32]byte) ([]byte, error) { return nil, nil }, ErrProvider},
		"garbage": {func(context.Context, *ecdsa.PrivateKey, [32]byte) ([]byte, error) { return []byte("garbage"), nil }, ErrProvider},
		"trailing byte": {func(ctx context.Context, k *ecdsa.PrivateKey, d [32]byte) ([]byte, error) {
			der, err := honest(ctx, k, d)
			return append(der, 0), err
		}, ErrProvider},
		"cut short": {func(ctx context.Context, k *ecdsa.PrivateKey, d [32]byte) ([]byte, error) {
			der, err := honest(ctx, k, d)
			return der[:len(der)-1], err
		}, ErrProvider},
		"long form of the length": {func(ctx context.Context, k *ecdsa.PrivateKey, d [32]byte) ([]byte, error) {
			der, err := honest(ctx, k, d)
			return append([]byte{der[0], 0x81}, der[1:]...), err
		}, ErrProvider},
		"third integer":   {reshaped(func(s integers) any { return integersAndMore{s.R, s.S, 1} }), ErrProvider},
		"r and s swapped": {reshaped(func(s integers) any { return integers{s.S, s.R} }), ErrProvider},
		"zero r":          {reshaped(func(s integers) any { return integers{new(big.Int), s.S} }), ErrProvider},
		"zero s":          {reshaped(func(s integers) any { return integers{s.R, new(big.Int)} }), ErrProvider},
		"s is n":          {reshaped(func(s integers) any { return integers{s.R, order} }), ErrProvider},
		"r plus n":        {reshaped(func(s integers) any { return integers{s.R.Add(s.R, order), s.S} }), ErrProvider},
		"negative s":      {reshaped(func(s integers) any { return integers{s.R, s.S.Neg(s.S)} }), ErrProvider},
		"another digest": {func(ctx context.Context, k *ecdsa.PrivateKey, d [32]byte) ([]byte, error) {
			d[0] ^= 1
			return honest(ctx, k, d)
		}, ErrProvider},
		"another key": {func(ctx context.Context, _ *ecdsa.PrivateKey, d [32]byte) ([]byte, error) {
			return honest(ctx, newP256(t), d)
		}, ErrProvider},
		"an error": {func(context.Context, *ecdsa.PrivateKey, [32]byte) ([]byte, error) { return nil, unavailable }, unavailable},
		"an error and a signature": {func(ctx context.Context, k *ecdsa.PrivateKey, d [32]byte) ([]byte, error) {
			der, _ := honest(ctx, k, d)
			return der, unavailable
		}, unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			signer := mustSigner(t, &fake{newP256(t), c.answer}, time.Minute, 1)
			signature, err := signer.Sign(t.Context(), [32]byte{7})
			if signature != "" || !errors.Is(err, c.want) {
				t.Errorf("%q, %v; want %v", signature, err, c.want)
			}
			// One slot: it must have come free again.
			if _, err := signer.Sign(t.Context(), [32]byte{8}); !errors.Is(err, c.want) {
				t.Errorf("second call: %v; want %v", err, c.want)
			}
		})
	}
}

func TestOtherCurveIsNoSigner(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newSigner(t.Context(), &fake{key, honest}, fakeHome, defaultLimits); err == nil || !strings.Contains(err.Error(), "P-256") {
		t.Errorf("%v; want an error naming P-256", err)
	}
}

// A provider that ignores its context blocks for ever: the caller gets its deadline,
// the next one finds the slot still held, and once the provider wakes all is well.
func TestStuckProvider(t *testing.T) {
	key := newP256(t)
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		signer := mustSigner(t, &fake{key, func(ctx context.Context, k *ecdsa.PrivateKey, d [32]byte) ([]byte, error) {
			<-wake
			return honest(ctx, k, d)
		}}, defaultLimits.deadline, 1)

		start := time.Now()
		_, err := signer.Sign(t.Context(), [32]byte{1})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("stuck provider: %v", err)
		}
		if took := time.Since(start); took != defaultLimits.deadline {
			t.Errorf("gave up after %v, want %v", took, defaultLimits.deadline)
		}
		_, err = signer.Sign(t.Context(), [32]byte{2})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "slots") {
			t.Errorf("no slot: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err = signer.Sign(ctx, [32]byte{3}); !errors.Is(err, context.Canceled) {
			t.Errorf("caller gave up: %v", err)
		}

		close(wake)
		synctest.Wait()
		if _, err := signer.Sign(t.Context(), [32]byte{4}); err != nil {
			t.Errorf("after it woke: %v", err)
		}
	})
}

func TestConcurrencyIsBounded(t *testing.T) {
	const limit = 3
	key := newP256(t)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		enter := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			now += n
			most = max(most, now)
		}
		signer := mustSigner(t, &fake{key, func(ctx context.Context, k *ecdsa.PrivateKey, d [32]byte) ([]byte, error) {
			enter(1)
			time.Sleep(time.Millisecond) // of the bubble's clock: all who may enter have
			enter(-1)
			return honest(ctx, k, d)
		}}, time.Minute, limit)
		var all sync.WaitGroup
		for i := range byte(64) {
			all.Go(func() {
				if _, err := signer.Sign(t.Context(), [32]byte{i}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if most != limit {
			t.Errorf("%d calls at once, want %d", most, limit)
		}
	})
}

func mustSigner(t *testing.T, p Provider, deadline time.Duration, concurrency int) *Signer {
	t.Helper()
	l := defaultLimits
	l.deadline, l.attempt, l.concurrency = deadline, deadline, concurrency
	signer, err := newSigner(t.Context(), p, fakeHome, l)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func BenchmarkSign(b *testing.B) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	signer, err := newSigner(b.Context(), &fake{key, honest}, fakeHome, defaultLimits)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := signer.Sign(b.Context(), [32]byte{1}); err != nil {
			b.Fatal(err)
		}
	}
}
