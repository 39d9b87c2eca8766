//go:build pkcs11 && cgo

package signing

import (
	"crypto/ed25519"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

func TestPKCS11Conforms(t *testing.T) {
	s := kmstest.StartSoftHSM(t)
	s.Import(t, "deployment", "01", newP256(t))
	conformance(t, s.URI("id=%01;type=private"), false)
}

func TestPKCS11LogKeyConforms(t *testing.T) {
	s := kmstest.StartSoftHSM(t)
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.Import(t, "log", "01", private)
	s.Import(t, "deployment", "02", newP256(t))
	if key := logKeyConforms(t, s.URI("object=log")); !key.Public().Equal(private.Public()) {
		t.Errorf("the token holds %x, and %x was imported", key.Public(), private.Public())
	}
	if _, err := OpenLogKey(t.Context(), s.URI("object=deployment")); err == nil || !strings.Contains(err.Error(), "a log key is an Ed25519 key") {
		t.Errorf("a P-256 key: %v", err)
	}
	if _, err := Open(t.Context(), s.URI("object=log")); err == nil || !strings.Contains(err.Error(), "es256 needs ") {
		t.Errorf("a log key as deployment key: %v", err)
	}
}

// A token that goes away and comes back is used again, with no restart: every
// signer of it, also one that was idle meanwhile.
func TestPKCS11TokenComesBack(t *testing.T) {
	s := kmstest.StartSoftHSM(t)
	s.Import(t, "one", "01", newP256(t))
	s.Import(t, "two", "02", newP256(t))
	first, second := mustOpen(t, s.URI("object=one")), mustOpen(t, s.URI("object=two"))
	s.Away(t, true)
	failed := 0
	for range 20 {
		if _, err := first.Sign(t.Context(), trial); err != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Fatal("the token signs although it is away: the test shows nothing")
	}
	s.Away(t, false)
	for _, signer := range []*Signer{first, second} {
		var err error
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if _, err = signer.Sign(t.Context(), trial); err == nil {
				break
			}
		}
		if err != nil {
			t.Errorf("the token is back and does not sign: %v", err)
		}
		if err := signer.Close(); err != nil {
			t.Error(err)
		}
	}
}
