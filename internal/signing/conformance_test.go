package signing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

// What every provider does alike. The one of PKCS#11, whose build has a tag, is in
// conformance_pkcs11_test.go.
func TestProvidersConform(t *testing.T) {
	g, err := kmstest.StartGCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	a := kmstest.NewAWS(t)
	dir := t.TempDir()
	dev := "dev://" + dir + "/keys/dev.pem"
	mustOpen(t, dev) // makes the key
	for name, c := range map[string]struct {
		uri    string
		remote *remoteCase
	}{
		"file": {uri: "file://" + dir + "/keys/dev.pem"},
		"dev":  {uri: dev},
		"gcpkms": {g.URI(g.NewKey()), &remoteCase{
			start: func() (remote, error) { return kmstest.StartGCP() },
			sign:  "AsymmetricSign",
		}},
		"awskms": {a.URI(a.NewKey()), &remoteCase{
			start: func() (remote, error) { return kmstest.StartAWS() },
			sign:  "Sign",
			lacks: []kmstest.Fault{kmstest.CorruptedCRC, kmstest.MissingCRC, kmstest.UnverifiedDigest},
			has:   []kmstest.Fault{kmstest.OtherAlgorithm, kmstest.TruncatedBody, kmstest.KeyUnavailable, kmstest.Redirected},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			conformance(t, c.uri, name == "dev")
			if c.remote != nil {
				remoteConformance(t, *c.remote)
			}
		})
	}
}

// conformance is what every provider must do, seen through Signer.
func conformance(t *testing.T, uri string, ephemeral bool) {
	t.Helper()
	start := func() *Signer {
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
	signer := start()
	keys, err := NewKeySet(signer.PublicKey(), nil)
	if err != nil {
		t.Fatalf("the label of the signer is not one a key set takes: %v", err)
	}

	t.Run("the key is the same at each opening", func(t *testing.T) {
		if again := start().PublicKey(); again != signer.PublicKey() {
			t.Errorf("first %s, then %s", signer.PublicKey(), again)
		}
	})

	t.Run("custody is told", func(t *testing.T) {
		if signer.Custody() == "" || signer.Ephemeral() != ephemeral {
			t.Errorf("custody %q, ephemeral: %v", signer.Custody(), signer.Ephemeral())
		}
	})

	t.Run("signatures verify, with low s", func(t *testing.T) {
		for i := range 200 {
			message := fmt.Appendf(nil, "message %d", i)
			signature, err := signer.Sign(t.Context(), sha256.Sum256(message))
			if err != nil {
				t.Fatal(err)
			}
			scheme, raw, err := parseSignature(signature) // refuses a high s
			if err != nil || scheme != schemeES256 || len(raw) != 64 {
				t.Fatalf("%s: scheme %q, %d bytes, %v", signature, scheme, len(raw), err)
			}
			if err := keys.Verify(message, signature); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			if _, err := keys.SignedBy(sha256.Sum256(message), signature); err != nil {
				t.Fatalf("digest %d: %v", i, err)
			}
			if err := keys.Verify(append(message, 'x'), signature); !errors.Is(err, ErrNotVerified) {
				t.Fatalf("another message: %v, want ErrNotVerified", err)
			}
		}
	})

	t.Run("64 at once", func(t *testing.T) {
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				digest := sha256.Sum256(fmt.Appendf(nil, "at once %d", i))
				signature, err := signer.Sign(t.Context(), digest)
				if err != nil {
					t.Error(err)
				} else if _, err := keys.SignedBy(digest, signature); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})

	t.Run("a cancelled context signs nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		signature, err := signer.Sign(ctx, [32]byte{1})
		if signature != "" || !errors.Is(err, context.Canceled) {
			t.Errorf("%q, %v; want context.Canceled", signature, err)
		}
	})

	t.Run("the label is compressed SEC1 in lower case", func(t *testing.T) {
		label := signer.PublicKey()
		digits, ok := strings.CutPrefix(label, "es256:0")
		if !ok || len(digits) != 65 || (digits[0] != '2' && digits[0] != '3') || strings.ToLower(digits) != digits {
			t.Errorf("label %q", label)
		}
	})
}

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
	start func() (remote, error)
	sign  string // the method that Calls counts for a signature
	lacks []kmstest.Fault
	has   []kmstest.Fault // besides the common ones; each makes a provider unavailable
}

// patient are limits that a slow machine does not meet. The breaker is out of the
// way: it has tests of its own.
var patient = limits{deadline: time.Minute, attempt: 10 * time.Second, concurrency: 32, tries: 4, trip: 1000, open: time.Second}

// quick are limits with which a hang costs a test little.
var quick = limits{deadline: 15 * time.Second, attempt: time.Second, concurrency: 32, tries: 4, trip: 1000, open: time.Second}

// What Sign must make of a fault that lasts. Where it is gone by the second try
// it always signs.
type faultCase struct {
	fault   kmstest.Fault
	lasting error // nil: it signs all the same
	tries   int   // calls of the provider while the fault lasts
}

var faults = []faultCase{
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
		if n := r.Calls("GetPublicKey"); n != 1 {
			t.Errorf("it was asked for %d times, want 1", n)
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
		back := time.Now().Add(time.Minute)
		for {
			signature, err := signer.Sign(t.Context(), [32]byte{2})
			if err == nil {
				if _, err := keys.SignedBy([32]byte{2}, signature); err != nil {
					t.Error(err)
				}
				return
			}
			if time.Now().After(back) {
				t.Fatalf("a minute after it came back: %v", err)
			}
		}
	})

	all := slices.Clone(faults)
	for _, fault := range c.has {
		all = append(all, faultCase{fault, ErrUnavailable, 4})
	}
	for _, f := range all {
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
			// Once: the second try succeeds, or none was needed.
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
