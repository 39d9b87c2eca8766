package signing

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/dev/kmstest"
	"github.com/fairpact/fairpact/internal/rules/keys"
)

// conformance_pkcs11_test.go runs these tests for PKCS#11, because PKCS#11 needs a build tag.

func TestProvidersConform(t *testing.T) {
	g, a := startGCP(t), kmstest.NewAWS(t)
	dir := t.TempDir()
	mustOpen(t, "dev://"+dir+"/p256.pem") // creates p256.pem
	if key, err := OpenLogKey(t.Context(), "dev://"+dir+"/ed25519.pem"); err != nil || key.Close() != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		p256, ed25519 string
		need          string
		remote        *remoteCase
	}{
		"file": {"file://" + dir + "/p256.pem", "file://" + dir + "/ed25519.pem", "not an Ed25519 key", nil},
		"dev":  {"dev://" + dir + "/p256.pem", "dev://" + dir + "/ed25519.pem", "not an Ed25519 key", nil},
		"gcpkms": {g.URI(g.NewKey()), g.URI(g.NewLogKey()), "a log key needs EC_SIGN_ED25519", &remoteCase{
			start: func() (remote, error) { return kmstest.StartGCP() },
			sign:  "AsymmetricSign",
			has:   []kmstest.Fault{kmstest.CorruptedCRC, kmstest.MissingCRC, kmstest.UnverifiedDigest},
		}},
		"awskms": {a.URI(a.NewKey()), a.URI(a.NewLogKey()), "a log key needs ECC_NIST_EDWARDS25519", &remoteCase{
			start: func() (remote, error) { return kmstest.StartAWS() },
			sign:  "Sign",
			has:   []kmstest.Fault{kmstest.OtherAlgorithm, kmstest.TruncatedBody, kmstest.KeyUnavailable, kmstest.Redirected},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			deploymentKeyConforms(t, c.p256, name == "dev")
			logKeyConforms(t, c.ed25519)
			if _, err := OpenLogKey(t.Context(), c.p256); err == nil || !strings.Contains(err.Error(), c.need) {
				t.Errorf("a P-256 key as log key: %v, want an error that says what it needs", err)
			}
			if _, err := Open(t.Context(), c.ed25519); err == nil || !strings.Contains(err.Error(), "es256 needs ") {
				t.Errorf("an Ed25519 key as deployment key: %v, want an error that says what it needs", err)
			}
			if c.remote != nil {
				remoteConforms(t, *c.remote)
			}
		})
	}
}

func deploymentKeyConforms(t *testing.T, uri string, ephemeral bool) {
	t.Helper()
	signer, again := mustOpen(t, uri), mustOpen(t, uri)
	if again.PublicKey() != signer.PublicKey() || signer.Custody() == "" || signer.Ephemeral() != ephemeral {
		t.Errorf("opened as %s, then as %s, custody %q, ephemeral %v; want the same key twice and ephemeral %t", signer.PublicKey(), again.PublicKey(), signer.Custody(), signer.Ephemeral(), ephemeral)
	}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			message := fmt.Appendf(nil, "message %d", i)
			signature, err := signer.Sign(t.Context(), sha256.Sum256(message))
			if err == nil {
				err = keys.Verify(signer.PublicKey(), message, signature) // Verify refuses a high s
			}
			if err != nil {
				t.Error(err)
			}
			if err := keys.Verify(signer.PublicKey(), append(message, 'x'), signature); !errors.Is(err, keys.ErrNotVerified) {
				t.Errorf("another message: %v, want ErrNotVerified", err)
			}
		})
	}
	all.Wait()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if signature, err := signer.Sign(gone, [32]byte{1}); signature != "" || !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %q, %v; want context.Canceled", signature, err)
	}
}

func logKeyConforms(t *testing.T, uri string) *LogKey {
	t.Helper()
	open := func() *LogKey {
		key, err := OpenLogKey(t.Context(), uri)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := key.Close(); err != nil {
				t.Error(err)
			}
		})
		return key
	}
	key, again := open(), open()
	if !again.Public().Equal(key.Public()) || key.Custody() == "" {
		t.Errorf("opened as %x, then as %x, custody %q; want the same key twice and a custody", key.Public(), again.Public(), key.Custody())
	}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			message := fmt.Appendf(nil, "fairpact.example.com\n%d\n", i)
			signature, err := key.Sign(t.Context(), message)
			if err != nil || !ed25519.Verify(again.Public(), message, signature) {
				t.Errorf("message %d: signature %x, %v; want one that verifies", i, signature, err)
			}
		})
	}
	all.Wait()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if signature, err := key.Sign(gone, []byte("message")); signature != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Sign with a cancelled context: %x, %v; want context.Canceled", signature, err)
	}
	return key
}

type remote interface {
	NewKey() string // returns the new key's name (Google Cloud) or ARN (AWS)
	NewLogKey() string
	URI(key string) string
	SetFault(kmstest.Fault) error
	FailTimes(f kmstest.Fault, n int) error
	Calls(method string) int
	Close()
}

type remoteCase struct {
	start func() (remote, error)
	sign  string          // the KMS's signing method, for remote.Calls
	has   []kmstest.Fault // faults that only this KMS has; `faults` lists those that every KMS has
}

// patient has timeouts for a slow machine, and a `trip` so high that the breaker never opens.
var patient = limits{deadline: time.Minute, attempt: 10 * time.Second, concurrency: 32, tries: 4, trip: 1000, open: time.Second}

var quick = limits{deadline: 15 * time.Second, attempt: time.Second, concurrency: 32, tries: 4, trip: 1000, open: time.Second}

// faultCase says how Sign ends while a fault lasts.
type faultCase struct {
	fault   kmstest.Fault
	lasting error // the error of Sign; nil: Sign succeeds
	tries   int   // calls to the provider during one Sign; for CutConnection the maximum
}

var faults = []faultCase{
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

func remoteConforms(t *testing.T, c remoteCase) {
	serve := func(t *testing.T) remote {
		t.Helper()
		r, err := c.start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		return r
	}
	start := func(t *testing.T, l limits) (remote, *Signer, keys.List) {
		t.Helper()
		r := serve(t)
		signer, err := open(t.Context(), r.URI(r.NewKey()), l)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = signer.Close() })
		return r, signer, keys.Of(signer.PublicKey())
	}
	set := func(t *testing.T, r remote, fault kmstest.Fault, times int) {
		t.Helper()
		if err := r.FailTimes(fault, times); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("the public key is read once", func(t *testing.T) {
		t.Parallel()
		r, signer, _ := start(t, patient)
		for i := range byte(10) {
			if _, err := signer.Sign(t.Context(), [32]byte{i}); err != nil {
				t.Fatal(err)
			}
			_ = signer.PublicKey()
		}
		if read, signatures := r.Calls("GetPublicKey"), r.Calls(c.sign); read != 1 || signatures != 11 {
			t.Errorf("%d calls for the key, %d of %s; want 1, and 10 after the one at the opening", read, signatures, c.sign)
		}
	})

	t.Run("a refusal is not retried", func(t *testing.T) {
		t.Parallel()
		r, signer, _ := start(t, patient)
		set(t, r, kmstest.Denied, -1)
		before := r.Calls(c.sign)
		_, err := signer.Sign(t.Context(), [32]byte{1})
		if err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrProvider) || outcome(err) != "refused" {
			t.Errorf("Sign without permission: %v, want a refusal", err)
		}
		if n := r.Calls(c.sign) - before; n != 1 {
			t.Errorf("called %d times, want 1", n)
		}
	})

	t.Run("a caller that leaves ends the call", func(t *testing.T) {
		t.Parallel()
		r, signer, _ := start(t, patient)
		set(t, r, kmstest.Hang, -1)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if _, err := signer.Sign(ctx, [32]byte{1}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
			t.Errorf("Sign with a cancelled context: %v, want only context.Canceled", err)
		}
	})

	t.Run("down and back on the same port", func(t *testing.T) {
		t.Parallel()
		r, signer, trusted := start(t, patient)
		set(t, r, kmstest.Down, -1)
		if _, err := signer.Sign(t.Context(), [32]byte{1}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("down: %v; want ErrUnavailable", err)
		}
		set(t, r, kmstest.None, -1)
		signature, err := "", errors.New("not tried")
		for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
			signature, err = signer.Sign(t.Context(), [32]byte{2})
		}
		if err == nil {
			_, err = trusted.SignedBy([32]byte{2}, signature)
		}
		if err != nil {
			t.Errorf("a minute after the provider came back: %v, want a signature", err)
		}
	})

	all := slices.Clone(faults)
	for _, fault := range c.has {
		all = append(all, faultCase{fault, ErrUnavailable, 4})
	}
	for _, f := range all {
		t.Run(string(f.fault), func(t *testing.T) {
			t.Parallel()
			l := patient
			if f.fault == kmstest.Hang {
				l = quick
			}
			r, signer, trusted := start(t, l)
			digest := sha256.Sum256([]byte(f.fault))
			sign := func(when string, want error) {
				t.Helper()
				signature, err := signer.Sign(t.Context(), digest)
				if !errors.Is(err, want) || err != nil && signature != "" {
					t.Errorf("%s: %q, %v; want %v", when, signature, err, want)
				}
				if f.fault == kmstest.Hang && err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v, want a timeout, because the provider hangs", when, err)
				}
				if _, bad := trusted.SignedBy(digest, signature); err == nil && bad != nil {
					t.Errorf("%s: the signature does not verify: %v", when, bad)
				}
			}
			set(t, r, f.fault, 1)
			sign("one fault", nil)
			set(t, r, f.fault, -1)
			before := r.Calls(c.sign)
			sign("a lasting fault", f.lasting)
			if n := r.Calls(c.sign) - before; n < 1 || n > f.tries || f.fault != kmstest.CutConnection && n != f.tries {
				t.Errorf("called %d times, want %d", n, f.tries)
			}
			set(t, r, kmstest.None, -1)
			sign("afterwards", nil)
		})
	}

	t.Run("a log key retries what passes and never returns a bad signature", func(t *testing.T) {
		t.Parallel()
		r := serve(t)
		key := logKeyConforms(t, r.URI(r.NewLogKey()))
		own := c.has[:min(3, len(c.has))]
		for _, fault := range append([]kmstest.Fault{kmstest.Throttled, kmstest.CutConnection}, own...) {
			set(t, r, fault, 1)
			if _, err := key.Sign(t.Context(), []byte(fault)); err != nil {
				t.Errorf("the fault %s once: %v, want a signature from the second call", fault, err)
			}
		}
		for _, fault := range append([]kmstest.Fault{kmstest.OtherKeyName, kmstest.OtherDigest, kmstest.OtherKey, kmstest.Denied}, own...) {
			set(t, r, fault, -1)
			if signature, err := key.Sign(t.Context(), []byte(fault)); err == nil || signature != nil {
				t.Errorf("the fault %s at each call: got a signature, want an error", fault)
			}
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	for uri, want := range map[string]string{
		"":                                     "dev://PATH",
		"key.pem":                              "file://PATH",
		"vault://secret-1234":                  "dev://PATH",
		"pkcs11:token=x?pin-value=secret-1234": "pin-source=file:/path",
		"gcpkms://":                            "cryptoKeyVersions/N",
		"awskms:///alias/a":                    "alias",
		"secret-1234 ://x":                     "no valid scheme",
		"FILE:///x":                            "no valid scheme",
		"file:/etc/key.pem":                    "file://PATH",
		"dev://":                               "dev://PATH",
		"file://" + dir:                        "not a regular file",
		"file://" + dir + "/missing.pem":       "no such file",
	} {
		_, signer := Open(t.Context(), uri)
		_, logKey := OpenLogKey(t.Context(), uri)
		for _, err := range []error{signer, logKey} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret-1234") {
				t.Errorf("Open(%q): error %q, want %q in it and nothing after the scheme", uri, err, want)
			}
		}
	}
}
