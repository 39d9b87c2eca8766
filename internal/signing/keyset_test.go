package signing

import (
	"crypto/sha256"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairpact/fairpact/internal/rules/keys"
)

// A cached signature gets the verdict that it would get without the cache: a changed signature is
// refused, and a key is accepted only from one margin before its time.
func TestCacheChangesNoVerdict(t *testing.T) {
	labels, uris := newLabels(t, 2)
	message := []byte("message")
	signature, err := mustOpen(t, uris[1]).Sign(t.Context(), sha256.Sum256(message))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		from := []int64{0, time.Now().Unix() + 1000}
		set, err := keys.NewSet(keys.List{{Label: labels[0], URI: uris[0], SignsFrom: &from[0]}, {Label: labels[1], URI: uris[1], SignsFrom: &from[1]}}, 5)
		if err != nil {
			t.Fatal(err)
		}
		k := NewKeySet(set)
		k.remember(sha256.Sum256(message), signature, labels[1])
		for range 2 {
			if _, err := k.SignerOf(message, signature); !errors.Is(err, keys.ErrNotVerified) || k.Accepts(labels[1]) {
				t.Errorf("before the key's time: %v, want ErrNotVerified", err)
			}
		}
		time.Sleep(995 * time.Second)
		for range 2 {
			if key, err := k.SignerOf(message, signature); err != nil || key.Label != labels[1] || !k.Accepts(labels[1]) {
				t.Errorf("one margin before the key's time: signed by %s, %v; want %s", key.Label, err, labels[1])
			}
		}
		changed := []byte(signature)
		changed[10] ^= 1
		if _, err := k.SignerOf(message, string(changed)); err == nil {
			t.Error("a changed signature verifies, want it refused")
		}
		if _, err := k.SignerOf([]byte("another"), signature); err == nil {
			t.Error("the signature of another message verifies, want it refused")
		}
	})
}

func BenchmarkSignerOf(b *testing.B) {
	signer, err := Open(b.Context(), "dev://"+b.TempDir()+"/key.pem")
	if err != nil {
		b.Fatal(err)
	}
	set, err := keys.OneSigner(signer.PublicKey(), "dev://key", nil, keys.Margin)
	if err != nil {
		b.Fatal(err)
	}
	message := []byte("message")
	signature, err := signer.Sign(b.Context(), sha256.Sum256(message))
	if err != nil {
		b.Fatal(err)
	}
	cached := NewKeySet(set)
	for name, of := range map[string]func() *KeySet{"cached": func() *KeySet { return cached }, "fresh": func() *KeySet { return NewKeySet(set) }} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := of().SignerOf(message, signature); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
