package signing

import (
	"context"
	"crypto/sha256"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/rules/keys"
)

// Margin returns how far the clocks of processes and clients may differ: keys.Margin, or less
// in tests of key rotation.
func Margin() time.Duration {
	if d, err := time.ParseDuration(crash.Setting("FAIRPACT_TEST_KEY_MARGIN")); err == nil {
		return d
	}
	return keys.Margin * time.Second
}

// ParseKeySet reads the document of a key set (see keys.ParseDocument). If only one key of the
// document signs, its pubkey may be left out: ParseKeySet then asks the key's KMS, HSM or file.
func ParseKeySet(ctx context.Context, document []byte) (*keys.Set, error) {
	list, err := keys.ParseDocument(document)
	if err != nil {
		return nil, err
	}
	var signs []*keys.Key
	for i := range list {
		if list[i].URI != "" {
			signs = append(signs, &list[i])
		}
	}
	if len(signs) == 1 && signs[0].Label == "" {
		if signs[0].Label, err = PublicKeyOf(ctx, signs[0].URI); err != nil {
			return nil, err
		}
	}
	return keys.NewSet(list, int64(Margin()/time.Second))
}

// KeySet is a key set at the time of the process's clock. It is safe for concurrent use.
type KeySet struct {
	set *keys.Set
	now func() time.Time

	verified [256]atomic.Pointer[verified] // indexed by the first byte of the digest
}

// verified is an es256 signature that was verified. A KeySet caches up to 256 of them,
// because a process soon verifies the signatures that it has just made.
type verified struct {
	digest    [32]byte
	signature string
	label     string
}

// NewKeySet returns a set that reads the process's clock.
func NewKeySet(set *keys.Set) *KeySet { return &KeySet{set: set, now: crash.Now} }

func (k *KeySet) unix() int64 { return k.now().Unix() }

// Keys returns all keys as published now.
func (k *KeySet) Keys() keys.List { return k.set.At(k.unix()) }

// Published returns the body that GET /v1/pubkeys answers now.
func (k *KeySet) Published() []byte { return k.set.Published(k.unix()) }

// Digest returns 12 hex digits that identify the document.
func (k *KeySet) Digest() string { return k.set.Digest() }

// Due returns the labels of the keys that have begun to sign. The last one signs now.
func (k *KeySet) Due() []string { return k.set.Due(k.unix()).Labels() }

// Accepts reports whether signatures by the labelled key verify now.
func (k *KeySet) Accepts(label string) bool {
	_, err := k.set.Accepted(label, k.unix())
	return err == nil
}

// CheckClock compares this process's clock with the unix time of the database's clock.
func (k *KeySet) CheckClock(database int64) error { return k.set.CheckClock(k.unix(), database) }

// SignerOf returns the accepted key, current or retired, that signed a message (SPEC 5.6). The error
// wraps keys.ErrMalformed or keys.ErrNotVerified.
func (k *KeySet) SignerOf(message []byte, signature string) (keys.Key, error) {
	if strings.HasPrefix(signature, "es256:") {
		return k.SignedBy(sha256.Sum256(message), signature)
	}
	return k.set.SignerOf(message, signature, k.unix())
}

// SignedBy returns the accepted key that signed a SHA-256 digest with es256. The errors are those of
// SignerOf.
func (k *KeySet) SignedBy(digest [32]byte, signature string) (keys.Key, error) {
	if v := k.verified[digest[0]].Load(); v != nil && v.digest == digest && v.signature == signature {
		return k.set.Accepted(v.label, k.unix())
	}
	key, err := k.set.SignedBy(digest, signature, k.unix())
	if err == nil {
		k.remember(digest, signature, key.Label)
	}
	return key, err
}

// remember caches a signature that was verified under the labelled key.
func (k *KeySet) remember(digest [32]byte, signature, label string) {
	k.verified[digest[0]].Store(&verified{digest, signature, label})
}
