package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

// KeyService is a cloud's key service for one test.
func KeyService(t testing.TB) *kmstest.GCP {
	t.Helper()
	kms, err := kmstest.StartGCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kms.Close)
	return kms
}

// SignedDeal is a deal that was played while the key service was away.
type SignedDeal struct {
	Deal   *Dealt
	Inputs []Sealed
}

const (
	// IssueBound is what a reveal waits for its certificate (internal/escrow).
	IssueBound = 3 * time.Second
)

// PlayedWithoutKey plays a deal whose certificate has to wait, and gives what
// its last reveal took.
func PlayedWithoutKey(c *Client) (SignedDeal, time.Duration) {
	d, took := PlayedAndTimed(c)
	if a := c.Do("GET", d.Deal.Path("/certificate"), d.Deal.Tokens[0], nil); a.Status != 409 || a.Code() != "CERT_NOT_READY" {
		c.T.Errorf("the certificate while the key service is away: %d %s", a.Status, a.Body)
	}
	return d, took
}

// PlayedAndTimed plays a deal and gives what its last reveal took.
func PlayedAndTimed(c *Client) (SignedDeal, time.Duration) {
	d := c.Create(SplitBody(time.Hour, 2*time.Hour))
	inputs := []Sealed{Seal(c.T, AnnsValues), Seal(c.T, BobsValues)}
	for i, in := range inputs {
		d.Commit(i, in)
	}
	d.Reveal(0, inputs[0])
	began := time.Now()
	a := d.Reveal(1, inputs[1])
	took := time.Since(began)
	var told struct{ State string }
	if a.Into(c.T, &told); told.State != "COMPUTED" {
		c.T.Errorf("the last reveal: %s", a.Body)
	}
	return SignedDeal{d, inputs}, took
}

func Quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)-1, int(q*float64(len(all))))].Round(time.Millisecond)
}

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
