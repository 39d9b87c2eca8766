//go:build pkcs11 && cgo

package signing

import (
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

func TestPKCS11Conforms(t *testing.T) {
	s := kmstest.StartSoftHSM(t)
	s.Import(t, "deployment", "01", newP256(t))
	conformance(t, s.URI("id=%01;type=private"), false)
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
