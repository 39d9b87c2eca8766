package signing

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/platform/crash"
)

var (
	// ErrMalformed is returned when a signature does not have the form of SPEC 5.6.
	ErrMalformed = errors.New("malformed signature")

	// ErrNotVerified is returned when a well-formed signature verifies under none of
	// the accepted keys.
	ErrNotVerified = errors.New("the signature verifies under no accepted key of the set")
)

// The published states of a key, in the order in which a key passes through them.
const (
	StateNext    = "next"    // will sign; signatures by it do not verify yet
	StateCurrent = "current" // the key that signs at the time now + Margin(); exactly one key has this state
	StateRetired = "retired" // replaced, or to be replaced within one margin (see Margin); signatures by it still verify
)

// Key is one key of a KeySet. State is the published state at the time of the call that
// returned the Key.
type Key struct {
	PublicKey string `json:"pubkey"` // the label of the public key: es256:HEX or ed25519:HEX
	State     string `json:"state,omitempty"`

	// SignsFrom is the unix time at which the key begins to sign. For a key that the key
	// set document lists as retired, SignsFrom is nil and URI is empty.
	SignsFrom *int64 `json:"signs_from,omitempty"`
	URI       string `json:"uri,omitempty"` // of the private key, in a form that the function Open accepts

	// RetiredAt is the unix time at which a retired key stops signing. nil means that the
	// time is unknown or that the key is not retired.
	RetiredAt *int64 `json:"retired_at,omitempty"`

	// TreeSize closes a retired key: a certificate that the key signed is valid only at a
	// leaf index below TreeSize. nil means that the key is not closed, because the log may
	// still get certificates that the key signed.
	TreeSize *int64 `json:"tree_size,omitempty"`

	// Disowned allows TreeSize to invalidate certificates that the key already signed. The
	// operator sets Disowned if the key was stolen.
	Disowned bool `json:"disowned,omitempty"`
}

// MaySignLeaf reports whether TreeSize allows a signature by the key for the leaf with this index.
func (k Key) MaySignLeaf(leafIndex int64) bool { return k.TreeSize == nil || leafIndex < *k.TreeSize }

// Closed reports whether the key is closed (see TreeSize).
func (k Key) Closed() bool { return k.TreeSize != nil }

// KeySet holds the keys of a deployment and the time from which each key signs. The keys come
// from configuration and never from a database table, because anyone who can write to a
// table could add a key. A KeySet is immutable and safe for concurrent use. rotation.go defines
// which key signs when.
type KeySet struct {
	keys    []Key
	signs   []int               // indexes in `keys` of the keys that have a SignsFrom, earliest first; never empty
	es256   []*ecdsa.PublicKey  // same indexes as keys; nil for an ed25519 key
	ed25519 []ed25519.PublicKey // same indexes as keys; nil for an es256 key
	margin  int64               // in seconds
	now     func() time.Time

	verified *[256]atomic.Pointer[verified] // a cache of verified signatures, indexed by the first byte of the digest
}

// NewKeySet returns a set with one key that signs and legacy keys that only verify. The
// arguments are labels of public keys. NewKeySet ignores repeated labels.
func NewKeySet(current string, legacy []string) (*KeySet, error) {
	return NewKeySetOf(current, "", legacy)
}

// NewKeySetOf is like NewKeySet, and also sets the URI of the key that signs.
func NewKeySetOf(current, uri string, legacy []string) (*KeySet, error) {
	if !strings.HasPrefix(current, schemeES256+":") {
		return nil, errors.New("the current public key is not an es256 key, and only es256 keys sign: set an es256 key as the current key, and list an ed25519 key as a legacy key")
	}
	k, err := newKeySet(Key{PublicKey: current, URI: uri, SignsFrom: new(int64)})
	if err != nil {
		return nil, fmt.Errorf("the current public key %.80q cannot be used: %w", current, err)
	}
	for i, label := range legacy {
		if k.find(label) >= 0 {
			continue
		}
		if err := k.add(Key{PublicKey: label}); err != nil {
			return nil, fmt.Errorf("legacy public key %d, %.80q, cannot be used: %w", i, label, err)
		}
	}
	return k, nil
}

// NewVerifyingKey returns a set with one key, es256 or ed25519. The set accepts signatures
// by the key at any time.
func NewVerifyingKey(label string) (*KeySet, error) {
	return newKeySet(Key{PublicKey: label, SignsFrom: new(int64)})
}

func newKeySet(keys ...Key) (*KeySet, error) {
	k := &KeySet{margin: int64(Margin() / time.Second), now: crash.Now, verified: new([256]atomic.Pointer[verified])}
	for _, key := range keys {
		if err := k.add(key); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *KeySet) find(label string) int {
	return slices.IndexFunc(k.keys, func(key Key) bool { return key.PublicKey == label })
}

// MaxKeys is the maximum number of keys in a set. Verifiers refuse a longer list.
const MaxKeys = 1000

func (k *KeySet) add(key Key) error {
	if len(k.keys) == MaxKeys {
		return fmt.Errorf("the key set has more than %d keys, and verifiers refuse such a set: remove retired keys that signed nothing", MaxKeys)
	}
	es, ed, err := parseLabel(key.PublicKey)
	if err != nil {
		return err
	}
	if key.SignsFrom != nil {
		k.signs = append(k.signs, len(k.keys))
	}
	k.keys, k.es256, k.ed25519 = append(k.keys, key), append(k.es256, es), append(k.ed25519, ed)
	slices.SortFunc(k.signs, func(a, b int) int { return cmp.Compare(*k.keys[a].SignsFrom, *k.keys[b].SignsFrom) })
	return nil
}

// Verify checks that an accepted key, current or retired, signed a message (SPEC 5.6).
// es256 signs SHA-256(message), and ed25519 signs the message itself. The error wraps
// ErrMalformed or ErrNotVerified.
func (k *KeySet) Verify(message []byte, signature string) error {
	_, err := k.SignerOf(message, signature)
	return err
}

// SignerOf returns the key that signed a message. The errors are those of Verify.
func (k *KeySet) SignerOf(message []byte, signature string) (Key, error) {
	scheme, raw, err := parseSignature(signature)
	if err != nil {
		return Key{}, err
	}
	if scheme == schemeES256 {
		return k.signerES256(sha256.Sum256(message), raw)
	}
	for i, public := range k.ed25519 {
		// ed25519.Verify refuses a signature whose S is not below the group order, as RFC 8032
		// 5.1.7 requires.
		if public != nil && ed25519.Verify(public, message, raw) {
			return k.accepted(i)
		}
	}
	return Key{}, ErrNotVerified
}

// SignedBy returns the key that signed a SHA-256 digest with es256. The error wraps
// ErrMalformed or ErrNotVerified. It wraps ErrNotVerified for every well-formed ed25519
// signature, because ed25519 signs the message itself and not a digest.
func (k *KeySet) SignedBy(digest [32]byte, signature string) (Key, error) {
	scheme, raw, err := parseSignature(signature)
	if err != nil {
		return Key{}, err
	}
	if scheme != schemeES256 {
		return Key{}, fmt.Errorf("%w: %s signs the message itself, but only the digest was given", ErrNotVerified, scheme)
	}
	return k.signerES256(digest, raw)
}

func (k *KeySet) signerES256(digest [32]byte, raw []byte) (Key, error) {
	slot := &k.verified[digest[0]]
	if v := slot.Load(); v != nil && v.digest == digest && string(raw) == v.raw {
		return k.accepted(v.key)
	}
	r, s := rawES256(raw)
	for i, public := range k.es256 {
		if public != nil && ecdsa.Verify(public, digest[:], r, s) {
			slot.Store(&verified{digest, string(raw), i})
			return k.accepted(i)
		}
	}
	return Key{}, ErrNotVerified
}

// verified is an es256 signature that was verified. A KeySet caches up to 256 of them,
// because a process soon verifies the signatures that it has just made.
type verified struct {
	digest [32]byte
	raw    string
	key    int // index in KeySet.keys
}

// remember caches an es256 signature that a Signer has just verified under the labelled key.
func (k *KeySet) remember(digest [32]byte, signature, label string) {
	_, raw, err := parseSignature(signature)
	for i, key := range k.keys {
		if err == nil && key.PublicKey == label && k.es256[i] != nil {
			k.verified[digest[0]].Store(&verified{digest, string(raw), i})
		}
	}
}

func (k *KeySet) accepted(i int) (Key, error) {
	key := k.at(i, k.now().Unix())
	if key.State == StateNext {
		return Key{}, fmt.Errorf("%w: the signature is by %s, but this key signs only from %s on", ErrNotVerified, key.PublicKey, formatTime(*key.SignsFrom))
	}
	return key, nil
}

func formatTime(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }
