package signing

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

// remote is a key service that the conformance test can make misbehave.
type remote interface {
	NewKey() string // a name or ARN
	URI(key string) string
	SetFault(kmstest.Fault) error           // until the next one
	FailTimes(f kmstest.Fault, n int) error // for the next n signing calls
	Calls(method string) int
	Close()
}

// remoteCase plugs a provider into remoteConformance.
type remoteCase struct {
	start     func() (remote, error)
	sign      string // the method that Calls counts for a signature
	publicKey string // and for the public key
	lacks     []kmstest.Fault
}

// patient are limits that a slow machine does not meet. The breaker is out of the
// way: it has tests of its own.
var patient = limits{deadline: time.Minute, attempt: 10 * time.Second, concurrency: 32, tries: 4, trip: 1000, open: time.Second}

// quick are limits with which a hang costs a test little.
var quick = limits{deadline: 15 * time.Second, attempt: time.Second, concurrency: 32, tries: 4, trip: 1000, open: time.Second}

// What Sign must make of a fault that lasts. Where it is gone by the second try
// it always signs.
var faults = []struct {
	fault   kmstest.Fault
	lasting error // nil: it signs all the same
	tries   int   // calls of the provider while the fault lasts
}{
	{kmstest.CorruptedCRC, ErrUnavailable, 4},
	{kmstest.MissingCRC, ErrUnavailable, 4},
	{kmstest.UnverifiedDigest, ErrUnavailable, 4},
	{kmstest.OtherKeyName, ErrUnavailable, 4},
	{kmstest.HighS, nil, 1},
	{kmstest.GarbageDER, ErrProvider, 2},
	{kmstest.OtherDigest, ErrProvider, 2},
	{kmstest.OtherKey, ErrProvider, 2},
	{kmstest.Throttled, ErrUnavailable, 4},
	{kmstest.ServerError, ErrUnavailable, 4},
	{kmstest.Overloaded, ErrUnavailable, 4},
	{kmstest.CutConnection, ErrUnavailable, 4},
	{kmstest.Hang, ErrUnavailable, 4},
}

// remoteConformance is what every provider behind a network must do beyond
// conformance.
func remoteConformance(t *testing.T, c remoteCase) {
	start := func(t *testing.T, l limits) (remote, *Signer, *KeySet) {
		t.Helper()
		r, err := c.start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		signer, err := open(t.Context(), r.URI(r.NewKey()), l)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = signer.Close() })
		keys, err := NewKeySet(signer.PublicKey(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return r, signer, keys
	}

	t.Run("the public key is asked for once", func(t *testing.T) {
		t.Parallel()
		r, signer, _ := start(t, patient)
		for i := range byte(10) {
			if _, err := signer.Sign(t.Context(), [32]byte{i}); err != nil {
				t.Fatal(err)
			}
			_ = signer.PublicKey()
		}
		if n := r.Calls(c.publicKey); n != 1 {
			t.Errorf("%s was called %d times, want 1", c.publicKey, n)
		}
		if n := r.Calls(c.sign); n != 11 { // one at the opening
			t.Errorf("%s was called %d times for 10 signatures and the check at the start", c.sign, n)
		}
	})

	t.Run("a refusal is final and named", func(t *testing.T) {
		t.Parallel()
		r, signer, _ := start(t, patient)
		if err := r.SetFault(kmstest.Denied); err != nil {
			t.Fatal(err)
		}
		before := r.Calls(c.sign)
		_, err := signer.Sign(t.Context(), [32]byte{1})
		if err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrProvider) || outcome(err) != "refused" {
			t.Errorf("%v", err)
		}
		if n := r.Calls(c.sign) - before; n != 1 {
			t.Errorf("asked %d times, want 1", n)
		}
	})

	t.Run("a caller that goes away ends the call", func(t *testing.T) {
		t.Parallel()
		r, signer, _ := start(t, patient)
		if err := r.SetFault(kmstest.Hang); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if _, err := signer.Sign(ctx, [32]byte{1}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
			t.Errorf("%v; want context.Canceled alone", err)
		}
	})

	t.Run("down and back on the same port", func(t *testing.T) {
		t.Parallel()
		r, signer, keys := start(t, patient)
		if err := r.SetFault(kmstest.Down); err != nil {
			t.Fatal(err)
		}
		if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("down: %v; want ErrUnavailable", err)
		}
		if err := r.SetFault(kmstest.None); err != nil {
			t.Fatal(err)
		}
		back := time.Now().Add(10 * time.Second)
		for {
			signature, err := signer.Sign(t.Context(), [32]byte{2})
			if err == nil {
				if _, err := keys.SignedBy([32]byte{2}, signature); err != nil {
					t.Error(err)
				}
				return
			}
			if time.Now().After(back) {
				t.Fatalf("10 s after it came back: %v", err)
			}
		}
	})

	for _, f := range faults {
		if slices.Contains(c.lacks, f.fault) {
			continue
		}
		t.Run(string(f.fault), func(t *testing.T) {
			t.Parallel()
			l := patient
			if f.fault == kmstest.Hang {
				l = quick
			}
			r, signer, keys := start(t, l)
			// Once: the second try mends it, or none was needed.
			if err := r.FailTimes(f.fault, 1); err != nil {
				t.Fatal(err)
			}
			digest := sha256.Sum256([]byte(f.fault))
			signature, err := signer.Sign(t.Context(), digest)
			if err != nil {
				t.Fatalf("once: %v", err)
			}
			if _, err := keys.SignedBy(digest, signature); err != nil {
				t.Errorf("once: %v", err)
			}
			// For good: never a bad signature, and not asked without end.
			if err := r.SetFault(f.fault); err != nil {
				t.Fatal(err)
			}
			before := r.Calls(c.sign)
			signature, err = signer.Sign(t.Context(), digest)
			if !errors.Is(err, f.lasting) || err != nil && signature != "" {
				t.Errorf("lasting: %q, %v; want %v", signature, err, f.lasting)
			}
			if err == nil {
				if _, err := keys.SignedBy(digest, signature); err != nil {
					t.Errorf("lasting: %v", err)
				}
			}
			if n := r.Calls(c.sign) - before; n < 1 || n > f.tries || f.fault != kmstest.CutConnection && n != f.tries {
				t.Errorf("asked %d times, want %d", n, f.tries)
			}
			if f.fault == kmstest.Hang && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a hang is a timeout too: %v", err)
			}
			// And all is well when it is over.
			if err := r.SetFault(kmstest.None); err != nil {
				t.Fatal(err)
			}
			if _, err := signer.Sign(t.Context(), digest); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}
