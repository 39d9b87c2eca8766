//go:build pkcs11 && cgo

package signing

import (
	"crypto/ed25519"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/dev/kmstest"
)

func TestPKCS11Conforms(t *testing.T) {
	s := kmstest.StartSoftHSM(t)
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.Import(t, "log", "01", private)
	s.Import(t, "deployment", "02", newP256(t))
	deploymentKeyConforms(t, s.URI("id=%02;type=private"), false)
	if key := logKeyConforms(t, s.URI("object=log")); !key.Public().Equal(private.Public()) {
		t.Errorf("the token has the key %x, want the imported key %x", key.Public(), private.Public())
	}
	if _, err := OpenLogKey(t.Context(), s.URI("object=deployment")); err == nil || !strings.Contains(err.Error(), "a log key is an Ed25519 key") {
		t.Errorf("a P-256 key as log key: %v, want an error that says what it needs", err)
	}
	if _, err := Open(t.Context(), s.URI("object=log")); err == nil || !strings.Contains(err.Error(), "es256 needs ") {
		t.Errorf("an Ed25519 key as deployment key: %v, want an error that says what it needs", err)
	}
}

// After a removed token is back, all its signers sign again without a restart, including a
// signer that was idle while the token was away.
func TestPKCS11TokenComesBack(t *testing.T) {
	s := kmstest.StartSoftHSM(t)
	s.Import(t, "one", "01", newP256(t))
	s.Import(t, "two", "02", newP256(t))
	signers := make([]*Signer, 2)
	for i, name := range []string{"one", "two"} {
		var err error
		if signers[i], err = Open(t.Context(), s.URI("object="+name)); err != nil {
			t.Fatal(err)
		}
	}
	s.Away(t, true)
	failed := 0
	for range 20 {
		if _, err := signers[0].Sign(t.Context(), trial); err != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Fatal("the token signs although it is away: the test shows nothing")
	}
	s.Away(t, false)
	for _, signer := range signers {
		var err error
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if _, err = signer.Sign(t.Context(), trial); err == nil {
				break
			}
		}
		if err != nil {
			t.Errorf("Sign with the token back: %v, want a signature", err)
		}
		if err := signer.Close(); err != nil {
			t.Error(err)
		}
	}
}
