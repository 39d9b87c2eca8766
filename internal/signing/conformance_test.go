package signing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// conformance is what every provider must do, seen through Signer. open gives a
// new signer of the same key at each call.
func conformance(t *testing.T, open func(t *testing.T) *Signer) {
	t.Helper()
	signer := open(t)
	keys, err := NewKeySet(signer.PublicKey(), nil)
	if err != nil {
		t.Fatalf("the label of the signer is not one a key set takes: %v", err)
	}

	t.Run("the key is the same at each opening", func(t *testing.T) {
		if again := open(t).PublicKey(); again != signer.PublicKey() {
			t.Errorf("first %s, then %s", signer.PublicKey(), again)
		}
	})

	t.Run("custody is told", func(t *testing.T) {
		if signer.Custody() == "" {
			t.Error("no words on where the key lives")
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

func TestFileConforms(t *testing.T) {
	path := writeKey(t, newP256(t))
	conformance(t, func(t *testing.T) *Signer { return mustOpen(t, "file://"+path) })
	if mustOpen(t, "file://"+path).Ephemeral() {
		t.Error("a key of a file is not a development key")
	}
}

func TestDevConforms(t *testing.T) {
	uri := "dev://" + t.TempDir() + "/keys/dev.pem"
	conformance(t, func(t *testing.T) *Signer { return mustOpen(t, uri) })
	if !mustOpen(t, uri).Ephemeral() {
		t.Error("a development key must say that it is one")
	}
}
