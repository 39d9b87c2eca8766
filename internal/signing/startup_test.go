package signing

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/kms/apiv1/kmspb"
)

// What an operator reads when a start fails says what is wrong, with which key,
// and what to do. The tables beside the providers' tests have the rest of the
// cases (TestGCPStartRefused, TestAWSStartRefused, TestPKCS11RefusedAtStart).

// silent is an endpoint that is connected to and never answers, as behind a
// network policy that lets the handshake through.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String() // the kernel connects; nobody accepts
}

// says holds the error of a start to all its parts.
func says(t *testing.T, settings Settings, within time.Duration, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, _, err := settings.Open(ctx, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Fatal("started")
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nwants %q", err, part)
		}
	}
}

func TestGCPStartSays(t *testing.T) {
	t.Parallel()
	g := startGCP(t)
	in := func(state kmspb.CryptoKeyVersion_CryptoKeyVersionState) string {
		name := g.NewKey()
		g.SetState(name, state)
		return name
	}
	rsa := g.NewKey()
	g.SetAlgorithm(rsa, kmspb.CryptoKeyVersion_RSA_SIGN_PKCS1_2048_SHA256)
	good := g.NewKey()
	for what, c := range map[string]struct {
		name string
		want []string
	}{
		"RSA":                   {rsa, []string{rsa, "is of algorithm RSA_SIGN_PKCS1_2048_SHA256", "EC_SIGN_P256_SHA256", "gcloud kms keys create"}},
		"disabled":              {in(kmspb.CryptoKeyVersion_DISABLED), []string{"not enabled", "gcloud kms keys versions enable"}},
		"to be destroyed":       {in(kmspb.CryptoKeyVersion_DESTROY_SCHEDULED), []string{"to be destroyed", "gcloud kms keys versions restore", "gcloud kms keys versions enable"}},
		"destroyed":             {in(kmspb.CryptoKeyVersion_DESTROYED), []string{"never comes back", "name an enabled version"}},
		"still being generated": {in(kmspb.CryptoKeyVersion_PENDING_GENERATION), []string{"still being made", "gcloud kms keys versions list"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			says(t, Settings{SigningKey: g.URI(c.name)}, time.Minute, append(c.want, c.name)...)
		})
	}
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		uri := strings.Replace(g.URI(good), strings.Replace(g.Addr(), ":", "%3A", 1), silent(t), 1)
		says(t, Settings{SigningKey: uri}, time.Second, good, "cloudkms.googleapis.com:443", "if this lasts")
	})
}

func TestGCPMayNotReadOrSign(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GetPublicKey", "AsymmetricSign"} {
		g := startGCP(t)
		key := g.NewKey()
		g.Deny(method, true)
		says(t, Settings{SigningKey: g.URI(key)}, time.Minute, "permission denied", "grant roles/cloudkms.signerVerifier on the key "+strings.TrimSuffix(key, "/cryptoKeyVersions/1")+" ", "Cloud KMS API is enabled")
		g.Deny(method, false)
		signer, _, err := (&Settings{SigningKey: g.URI(key)}).Open(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("granted again: %v", err)
		}
		_ = signer.Close()
	}
}

func TestAWSStartSays(t *testing.T) {
	a := startAWS(t)
	pending := a.NewKey()
	a.SetState(pending, "PendingImport")
	good := a.NewKey()
	at := "awskms:///" + good + "?endpoint=http://" + silent(t)
	for what, c := range map[string]struct {
		uri  string
		want []string
	}{
		"no key material yet": {a.URI(pending), []string{pending, "the key's state forbids its use", "PendingImport"}},
		"silent":              {at, []string{good, "no answer in time", "kms.REGION.amazonaws.com:443", "VPC endpoint"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			says(t, Settings{SigningKey: c.uri}, time.Second, c.want...)
		})
	}
}

// A key that is good and is not the published one stops the start, wherever it
// lives; the message names both keys, the custody and the mend.
func TestStartWithAnotherKeyThanThePublished(t *testing.T) {
	g, a := startGCP(t), startAWS(t)
	labels, _ := newLabels(t, 1)
	published := labels[0]
	for custody, uri := range map[string]string{
		"Google Cloud KMS, HSM protection level, key …/cryptoKeys/key-1/cryptoKeyVersions/1": g.URI(g.NewKey()),
		"AWS KMS, key …/": a.URI(a.NewKey()),
	} {
		signer := mustOpen(t, uri)
		held := signer.PublicKey()
		want := []string{custody, held, published}
		says(t, Settings{SigningKey: uri, PublicKey: published}, time.Minute, append(want, "FAIRPACT_SIGNING_KEY is not the key of FAIRPACT_PUBLIC_KEY")...)
		path := filepath.Join(t.TempDir(), "keys.json")
		document := `{"keys":[{"pubkey":"` + published + `","uri":"` + uri + `","signs_from":0}]}`
		if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		says(t, Settings{KeySetFile: path}, time.Minute, append(want, "FAIRPACT_KEY_SET_FILE", path, `correct "uri" or "pubkey"`)...)
	}
}
