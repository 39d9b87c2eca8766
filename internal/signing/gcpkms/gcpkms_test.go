package gcpkms_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/kms/apiv1/kmspb"

	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

func start(t *testing.T) *kmstest.GCP {
	t.Helper()
	g, err := kmstest.StartGCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func refuses(t *testing.T, ctx context.Context, uri string, want ...string) {
	t.Helper()
	_, err := signing.Open(ctx, uri)
	if err == nil {
		t.Fatal("opened")
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nwants %q", err, part)
		}
	}
	for _, secret := range []string{"hunter2", "%hu"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q is shown by %v", secret, err)
		}
	}
}

func TestCustody(t *testing.T) {
	t.Parallel()
	g := start(t)
	signer, err := signing.Open(t.Context(), g.URI(g.NewKey()))
	if err != nil {
		t.Fatal(err)
	}
	if want := "Google Cloud KMS, HSM protection level, key …/cryptoKeys/key-1/cryptoKeyVersions/1"; signer.Custody() != want {
		t.Errorf("%q, want %q", signer.Custody(), want)
	}
}

// Each error says what to do.
func TestStartRefused(t *testing.T) {
	t.Parallel()
	g := start(t)
	in := func(state kmspb.CryptoKeyVersion_CryptoKeyVersionState) string {
		name := g.NewKey()
		g.SetState(name, state)
		return g.URI(name)
	}
	of := func(algorithm kmspb.CryptoKeyVersion_CryptoKeyVersionAlgorithm) string {
		name := g.NewKey()
		g.SetAlgorithm(name, algorithm)
		return g.URI(name)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel completes handshakes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unused.Close()
	const name = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
	const version = name + "/cryptoKeyVersions/1"
	at := func(l net.Listener) string {
		return "gcpkms://" + version + "?plaintext=true&endpoint=" + l.Addr().String()
	}
	for what, c := range map[string]struct {
		uri  string
		want []string
	}{
		"RSA":                 {of(kmspb.CryptoKeyVersion_RSA_SIGN_PKCS1_2048_SHA256), []string{"is of algorithm RSA_SIGN_PKCS1_2048_SHA256", "EC_SIGN_P256_SHA256", "gcloud kms keys create", "ec-sign-p256-sha256"}},
		"disabled":            {in(kmspb.CryptoKeyVersion_DISABLED), []string{"not enabled", "gcloud kms keys versions enable"}},
		"to be destroyed":     {in(kmspb.CryptoKeyVersion_DESTROY_SCHEDULED), []string{"scheduled to be destroyed", "gcloud kms keys versions restore", "gcloud kms keys versions enable"}},
		"destroyed":           {in(kmspb.CryptoKeyVersion_DESTROYED), []string{"never comes back", "name an enabled version"}},
		"still being made":    {in(kmspb.CryptoKeyVersion_PENDING_GENERATION), []string{"still being made", "gcloud kms keys versions list"}},
		"no such version":     {g.URI(name + "/cryptoKeyVersions/7"), []string{"no such key version"}},
		"no version":          {"gcpkms://" + name, []string{"add /cryptoKeyVersions/N"}},
		"a version that is 0": {"gcpkms://" + name + "/cryptoKeyVersions/0", []string{"gcpkms://projects/P"}},
		"a version in words":  {"gcpkms://" + name + "/cryptoKeyVersions/latest", []string{"gcpkms://projects/P"}},
		"an unknown option":   {"gcpkms://" + version + "?tls=no", []string{"tls"}},
		"plaintext to Google": {"gcpkms://" + version + "?plaintext=true", []string{"endpoint=HOST:PORT"}},
		"out of reach":        {at(unused), []string{"out of reach"}},
		"silent":              {at(l), []string{version, "cloudkms.googleapis.com:443", "if this lasts"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if what == "silent" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			refuses(t, ctx, c.uri, c.want...)
		})
	}
}

func TestMayNotReadOrSign(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GetPublicKey", "AsymmetricSign"} {
		g := start(t)
		key := g.NewKey()
		g.Deny(method, true)
		refuses(t, t.Context(), g.URI(key), "permission denied", "grant roles/cloudkms.signerVerifier on the key "+strings.TrimSuffix(key, "/cryptoKeyVersions/1")+" ", "Cloud KMS API is enabled")
		g.Deny(method, false)
		if _, err := signing.Open(t.Context(), g.URI(key)); err != nil {
			t.Errorf("granted again: %v", err)
		}
	}
}

func TestNoCredentials(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", t.TempDir()+"/none.json")
	refuses(t, t.Context(), "gcpkms://projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1", "Workload Identity")
}

// An operator may put a credential into a key's URI. The error says what is wrong
// and does not copy the credential into the log.
func TestCredentialsInURIsAreNotShown(t *testing.T) {
	t.Parallel()
	const gcp = "gcpkms://projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1"
	for uri, says := range map[string]string{
		gcp + "?token=hunter2":                                     `"token"`,
		gcp + "?plaintext=hunter2":                                 `"plaintext"`,
		gcp + "?endpoint=u:hunter2@127.0.0.1:1":                    "'@'",
		gcp + "?plaintext=true&endpoint=u%3Ahunter2%40127.0.0.1:1": `"endpoint"`,
		gcp + "?endpoint=127.0.0.1:1&endpoint=hunter2":             `"endpoint"`,
		gcp + "?token=x%hu":                                        "does not parse",
		strings.Replace(gcp, "//", "//user:hunter2@", 1):           "'@'",
	} {
		refuses(t, t.Context(), uri, says)
	}
}
