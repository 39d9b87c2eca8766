package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairpact/fairpact/internal/signing"
)

// KeysOfStatus are the members of /v1/status that a client verifies with.
type KeysOfStatus struct {
	Pubkey string
	Legacy []string `json:"legacy_pubkeys"`
}

func (s KeysOfStatus) Keys() (*signing.KeySet, error) { return signing.NewKeySet(s.Pubkey, s.Legacy) }

// KeyFile makes a signing key and gives its URI and its published label.
func KeyFile(t testing.TB) (uri, label string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	signer, err := signing.Open(t.Context(), "file://"+path)
	if err != nil {
		t.Fatal(err)
	}
	return "file://" + path, signer.PublicKey()
}
