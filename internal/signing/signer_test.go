package signing

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
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

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fairpact/fairpact/internal/signing/provider"
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
	signer, err := open(t.Context(), uri, patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := signer.Close(); err != nil {
			t.Error(err)
		}
	})
	return signer
}

func newDev(t *testing.T) *Signer {
	t.Helper()
	return mustOpen(t, "dev://"+t.TempDir()+"/key.pem")
}

type answer func(ctx context.Context, key *ecdsa.PrivateKey, digest []byte) ([]byte, error)

type fake struct {
	key    *ecdsa.PrivateKey
	answer answer
}

func (f *fake) Key(context.Context) (crypto.PublicKey, string, error) {
	return &f.key.PublicKey, "fake", nil
}
func (f *fake) Sign(ctx context.Context, digest []byte) ([]byte, error) {
	return f.answer(ctx, f.key, digest)
}
func (f *fake) Close() error { return nil }

func mustSigner(t *testing.T, p provider.Provider, l limits) *Signer {
	t.Helper()
	signer, err := newSigner(t.Context(), p, store{scheme: "fake"}, l)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func honest(_ context.Context, key *ecdsa.PrivateKey, digest []byte) ([]byte, error) {
	return ecdsa.SignASN1(rand.Reader, key, digest)
}

// A lax DER parser would accept many of these provider answers as signatures. The conformance tests
// cover valid DER with a signature of another digest or by another key.
func TestInvalidAnswers(t *testing.T) {
	type integers struct{ R, S *big.Int }
	reshaped := func(change func(integers) any) answer {
		return func(ctx context.Context, key *ecdsa.PrivateKey, digest []byte) ([]byte, error) {
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
	edited := func(change func([]byte) []byte) answer {
		return func(ctx context.Context, key *ecdsa.PrivateKey, digest []byte) ([]byte, error) {
			der, err := honest(ctx, key, digest)
			return change(der), err
		}
	}
	sealed := errors.New("the vault is sealed")
	for name, c := range map[string]struct {
		answer answer
		want   error
	}{
		"nothing":                 {edited(func([]byte) []byte { return nil }), ErrProvider},
		"trailing byte":           {edited(func(der []byte) []byte { return append(der, 0) }), ErrProvider},
		"cut short":               {edited(func(der []byte) []byte { return der[:len(der)-1] }), ErrProvider},
		"long form of the length": {edited(func(der []byte) []byte { return append([]byte{der[0], 0x81}, der[1:]...) }), ErrProvider},
		"third integer": {reshaped(func(s integers) any {
			return struct {
				R, S *big.Int
				More int
			}{s.R, s.S, 1}
		}), ErrProvider},
		"r and s swapped": {reshaped(func(s integers) any { return integers{s.S, s.R} }), ErrProvider},
		"zero r":          {reshaped(func(s integers) any { return integers{new(big.Int), s.S} }), ErrProvider},
		"s is n":          {reshaped(func(s integers) any { return integers{s.R, elliptic.P256().Params().N} }), ErrProvider},
		"r plus n":        {reshaped(func(s integers) any { return integers{s.R.Add(s.R, elliptic.P256().Params().N), s.S} }), ErrProvider},
		"negative s":      {reshaped(func(s integers) any { return integers{s.R, s.S.Neg(s.S)} }), ErrProvider},
		"an error and a signature": {func(ctx context.Context, k *ecdsa.PrivateKey, d []byte) ([]byte, error) {
			der, _ := honest(ctx, k, d)
			return der, sealed
		}, sealed},
	} {
		t.Run(name, func(t *testing.T) {
			l := patient
			l.concurrency = 1
			signer := mustSigner(t, &fake{newP256(t), c.answer}, l)
			for range 2 { // there is one slot, so the second Sign checks that the first released it
				if signature, err := signer.Sign(t.Context(), [32]byte{7}); signature != "" || !errors.Is(err, c.want) {
					t.Errorf("Sign: %q, %v; want %v", signature, err, c.want)
				}
			}
		})
	}
}

func TestSignerNeedsP256(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newSigner(t.Context(), &fake{key, honest}, store{}, defaultLimits); err == nil || !strings.Contains(err.Error(), "P-256") {
		t.Errorf("newSigner with another curve: %v, want an error that names P-256", err)
	}
}

func TestStuckProvider(t *testing.T) {
	key := newP256(t)
	synctest.Test(t, func(t *testing.T) {
		l := defaultLimits
		l.attempt, l.concurrency = l.deadline, 1
		signer := mustSigner(t, &fake{key, stuck}, l)
		start := time.Now()
		first := make(chan error)
		go func() { _, err := signer.Sign(t.Context(), [32]byte{1}); first <- err }()
		synctest.Wait()
		_, second := signer.Sign(t.Context(), [32]byte{2})
		for _, err := range []error{<-first, second} {
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnavailable) {
				t.Errorf("Sign while the provider hangs: %v, want ErrUnavailable and context.DeadlineExceeded", err)
			}
		}
		if took := time.Since(start); took != l.deadline {
			t.Errorf("returned after %v, want %v", took, l.deadline)
		}
		if err := signer.Close(); err != nil {
			t.Error(err)
		}
	})
}

func stuck(ctx context.Context, _ *ecdsa.PrivateKey, _ []byte) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestConcurrencyIsBounded(t *testing.T) {
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
		l := patient
		l.concurrency = 3
		signer := mustSigner(t, &fake{key, func(ctx context.Context, k *ecdsa.PrivateKey, d []byte) ([]byte, error) {
			enter(1)
			// synctest advances the clock only when all goroutines are blocked. So no call ends before
			// as many calls as possible are running.
			time.Sleep(time.Millisecond)
			enter(-1)
			return honest(ctx, k, d)
		}}, l)
		var all sync.WaitGroup
		for i := range byte(64) {
			all.Go(func() {
				if _, err := signer.Sign(t.Context(), [32]byte{i}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if most != int(l.concurrency) {
			t.Errorf("%d calls at once, want %d", most, l.concurrency)
		}
	})
}

func TestClose(t *testing.T) {
	signer := mustSigner(t, &fake{newP256(t), honest}, patient)
	for range 2 {
		if err := signer.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, errClosed) {
		t.Errorf("Sign after Close: %v, want errClosed", err)
	}
}

func TestEveryOutcomeStartsAtZero(t *testing.T) {
	series := func() int {
		found := make(chan prometheus.Metric, 1000)
		requests.Collect(found)
		return len(found)
	}
	before, fresh := series(), "fresh-"+rand.Text() // a new scheme, because with go test -count the metric series of earlier runs remain
	if _, err := newSigner(t.Context(), &fake{newP256(t), honest}, store{scheme: fresh}, patient); err != nil {
		t.Fatal(err)
	}
	created := series() - before
	outcomes := map[string]bool{}
	for _, err := range []error{nil, ErrProvider, context.Canceled, context.DeadlineExceeded, ErrUnavailable, errClosed, errors.New("no permission")} {
		outcomes[outcome(err)] = true
		var m dto.Metric
		if bad := requests.WithLabelValues(fresh, deploymentKey, outcome(err)).Write(&m); bad != nil || m.GetCounter().GetValue() != 0 {
			t.Errorf("the error %v has the outcome %q, whose series starts at %v (%v), want 0", err, outcome(err), m.GetCounter().GetValue(), bad)
		}
	}
	if after := series() - before; created != len(outcomes) || after != created {
		t.Errorf("%d series are created at the start, %d exist, want %d", created, after, len(outcomes))
	}
}

type fakeLogKey struct {
	provider.Provider
	sign func(message []byte) ([]byte, error)
}

func (f fakeLogKey) Sign(_ context.Context, message []byte) ([]byte, error) { return f.sign(message) }

func TestLogKeySignaturesAreCountedApart(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for want, sign := range map[string]func([]byte) ([]byte, error){
		"ok":          func(message []byte) ([]byte, error) { return ed25519.Sign(private, message), nil },
		"invalid":     func([]byte) ([]byte, error) { return ed25519.Sign(private, []byte("another")), nil },
		"refused":     func([]byte) ([]byte, error) { return nil, errors.New("no permission") },
		"unavailable": func([]byte) ([]byte, error) { return nil, provider.Transient(errors.New("overloaded")) },
	} {
		scheme := want + "-" + rand.Text()
		key := &LogKey{provider: fakeLogKey{sign: sign}, scheme: scheme, public: public}
		_, err := key.Sign(t.Context(), []byte("checkpoint"))
		for _, of := range []string{logKey, deploymentKey} {
			var m dto.Metric
			if bad := requests.WithLabelValues(scheme, of, want).Write(&m); bad != nil || (m.GetCounter().GetValue() == 1) != (of == logKey) {
				t.Errorf("%v: %v signatures of the %s key with the outcome %s (%v), want it counted for the log key", err, m.GetCounter().GetValue(), of, want, bad)
			}
		}
		var m dto.Metric // the audit compares this count with the provider's
		if bad := callSeconds.WithLabelValues(scheme, logKey).(prometheus.Metric).Write(&m); bad != nil || m.GetHistogram().GetSampleCount() == 0 {
			t.Errorf("%s: the call to the provider is not in the histogram (%v)", want, bad)
		}
	}
}
