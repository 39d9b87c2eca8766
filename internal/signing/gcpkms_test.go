package signing

import (
	"context"
	"crypto/sha256"
	"net"
	"strings"
	"testing"

	kms "cloud.google.com/go/kms/apiv1"
	"cloud.google.com/go/kms/apiv1/kmspb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

func startGCP(t *testing.T) *kmstest.GCP {
	t.Helper()
	g, err := kmstest.StartGCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func TestGCPConforms(t *testing.T) {
	t.Parallel()
	g := startGCP(t)
	key := g.NewKey()
	conformance(t, func(t *testing.T) *Signer { return mustOpenPatiently(t, g.URI(key)) })
	remoteConformance(t, remoteCase{
		start: func() (remote, error) { return kmstest.StartGCP() },
		sign:  "AsymmetricSign", publicKey: "GetPublicKey",
	})
}

func TestGCPCustody(t *testing.T) {
	t.Parallel()
	g := startGCP(t)
	custody := mustOpen(t, g.URI(g.NewKey())).Custody()
	if want := "Google Cloud KMS, HSM protection level, key …/cryptoKeys/key-1/cryptoKeyVersions/1"; custody != want {
		t.Errorf("%q, want %q", custody, want)
	}
}

// A key that cannot sign stops the start, and the message names the mend.
func TestGCPStartRefused(t *testing.T) {
	t.Parallel()
	g := startGCP(t)
	in := func(state kmspb.CryptoKeyVersion_CryptoKeyVersionState) string {
		name := g.NewKey()
		g.SetState(name, state)
		return g.URI(name)
	}
	lying := g.NewKeyP384()
	g.SetAlgorithm(lying, kmspb.CryptoKeyVersion_EC_SIGN_P256_SHA256)
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := unused.Addr().String()
	unused.Close()
	const name = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
	for what, c := range map[string]struct{ uri, want string }{
		"another algorithm":   {g.URI(g.NewKeyP384()), "ec-sign-p256-sha256"},
		"another curve":       {g.URI(lying), "P-256"},
		"disabled":            {in(kmspb.CryptoKeyVersion_DISABLED), "versions enable"},
		"destroyed":           {in(kmspb.CryptoKeyVersion_DESTROYED), "name an enabled version"},
		"no such version":     {g.URI(name + "/cryptoKeyVersions/7"), "no such key version"},
		"no version":          {"gcpkms://" + name, "add /cryptoKeyVersions/N"},
		"a version that is 0": {"gcpkms://" + name + "/cryptoKeyVersions/0", "gcpkms://projects/P"},
		"a version in words":  {"gcpkms://" + name + "/cryptoKeyVersions/latest", "gcpkms://projects/P"},
		"nothing":             {"gcpkms://", "gcpkms://projects/P"},
		"an unknown option":   {"gcpkms://" + name + "/cryptoKeyVersions/1?tls=no", "tls"},
		"plaintext to Google": {"gcpkms://" + name + "/cryptoKeyVersions/1?plaintext=true", "endpoint=HOST:PORT"},
		"out of reach":        {"gcpkms://" + name + "/cryptoKeyVersions/1?plaintext=true&endpoint=" + nobody, "out of reach"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, err := Open(t.Context(), c.uri)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want an error with %q", err, c.want)
			}
		})
	}
}

// The key may be read, and not be used.
func TestGCPNoPermission(t *testing.T) {
	t.Parallel()
	g := startGCP(t)
	if err := g.SetFault(kmstest.Denied); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), g.URI(g.NewKey()))
	if err == nil || !strings.Contains(err.Error(), "grant roles/cloudkms.signerVerifier on the key projects/test/locations/europe-west6/keyRings/fairpact/cryptoKeys/key-1 ") {
		t.Errorf("%v; want the role and the key", err)
	}
}

func TestGCPNoCredentials(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", t.TempDir()+"/none.json")
	_, err := Open(t.Context(), "gcpkms://projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1")
	if err == nil || !strings.Contains(err.Error(), "Workload Identity") {
		t.Errorf("%v; want an error about credentials", err)
	}
}

// The server refuses what Google's refuses.
func TestGCPServerValidates(t *testing.T) {
	t.Parallel()
	g := startGCP(t)
	key := g.NewKey()
	a, err := parseGCP(strings.TrimPrefix(g.URI(key), "gcpkms://"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kms.NewKeyManagementClient(context.Background(), gcpOptions(a)...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	digest := sha256.Sum256([]byte("x"))
	of := func(digest []byte) *kmspb.Digest { return &kmspb.Digest{Digest: &kmspb.Digest_Sha256{Sha256: digest}} }
	for what, c := range map[string]struct {
		request *kmspb.AsymmetricSignRequest
		want    codes.Code
	}{
		"a short digest": {&kmspb.AsymmetricSignRequest{Name: key, Digest: of(digest[:31])}, codes.InvalidArgument},
		"a long digest":  {&kmspb.AsymmetricSignRequest{Name: key, Digest: of(append(digest[:], 0))}, codes.InvalidArgument},
		"no digest":      {&kmspb.AsymmetricSignRequest{Name: key}, codes.InvalidArgument},
		"a wrong CRC":    {&kmspb.AsymmetricSignRequest{Name: key, Digest: of(digest[:]), DigestCrc32C: wrapperspb.Int64(1)}, codes.InvalidArgument},
		"a digest of another kind": {&kmspb.AsymmetricSignRequest{Name: key,
			Digest: &kmspb.Digest{Digest: &kmspb.Digest_Sha512{Sha512: make([]byte, 64)}}}, codes.InvalidArgument},
		"no name": {&kmspb.AsymmetricSignRequest{Digest: of(digest[:])}, codes.InvalidArgument},
	} {
		if _, err := client.AsymmetricSign(t.Context(), c.request); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	version, err := client.GetCryptoKeyVersion(t.Context(), &kmspb.GetCryptoKeyVersionRequest{Name: key})
	if err != nil || version.State != kmspb.CryptoKeyVersion_ENABLED {
		t.Errorf("%v, %v", version, err)
	}
}
