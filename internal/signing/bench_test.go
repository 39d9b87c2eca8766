package signing

import (
	"testing"

	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

// BenchmarkProviders signs through every provider that this build can reach: what
// a provider adds to a software key, without the network and the HSM of a cloud.
func BenchmarkProviders(b *testing.B) {
	google, err := kmstest.StartGCP()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(google.Close)
	amazon := kmstest.NewAWS(b)
	for _, c := range []struct{ name, uri string }{
		{"file", "dev://" + b.TempDir() + "/key.pem"},
		{"gcpkms", google.URI(google.NewKey())},
		{"awskms", amazon.URI(amazon.NewKey())},
	} {
		b.Run(c.name, func(b *testing.B) {
			signer, err := Open(b.Context(), c.uri)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = signer.Close() })
			for b.Loop() {
				if _, err := signer.Sign(b.Context(), [32]byte{1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
