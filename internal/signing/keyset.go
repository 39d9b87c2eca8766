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

	"github.com/fairpact/fairpact/internal/crash"
)

var (
	// ErrMalformed is returned when a signature does not have the form of SPEC 5.6.
	ErrMalformed = errors.New("malformed signature")

	// ErrNotVerified is returned when a well-formed signature verifies under none of
	// the accepted keys.
	ErrNotVerified = errors.New("the signature verifies under no key of the set")
)

// The published states of a key, in the order of its life.
const (
	StateNext    = "next"    // will sign; not yet accepted
	StateCurrent = "current" // signs now, or soon will; exactly one key has this state
	StateRetired = "retired" // replaced; its signatures still verify
)

// Key is a key of a set. State is its published state when the Key was returned.
type Key struct {
	PublicKey string `json:"pubkey"` // its label, es256:HEX or ed25519:HEX
	State     string `json:"state,omitempty"`

	// SignsFrom is the unix time at which the key begins to sign. SignsFrom is nil and
	// URI is empty for a key that the document lists as retired.
	SignsFrom *int64 `json:"signs_from,omitempty"`
	URI       string `json:"uri,omitempty"` // names the private key; see Open

	// RetiredAt is the unix time at which a retired key stopped signing. nil: unknown.
	RetiredAt *int64 `json:"retired_at,omitempty"`

	// TreeSize closes a retired key: its signatures count only for leaves with a lower
	// index. nil: not closed, because the log may still get certificates that the key
	// signed.
	TreeSize *int64 `json:"tree_size,omitempty"`

	// Disowned reports whether TreeSize excludes leaves that the key signed. The operator
	// chose such a TreeSize because the key was stolen.
	Disowned bool `json:"disowned,omitempty"`
}

// MayHold reports whether the key's signature counts for the leaf with this index.
func (k Key) MayHold(leafIndex int64) bool { return k.TreeSize == nil || leafIndex < *k.TreeSize }

// Closed reports whether TreeSize closes the key.
func (k Key) Closed() bool { return k.TreeSize != nil }

// KeySet holds the keys of a deployment and when each signs. The keys come from
// configuration, never from a table, because a database writer could add a key there. A
// KeySet does not change and is safe for concurrent use. rotation.go defines which key
// signs when.
type KeySet struct {
	keys    []Key
	signs   []int               // indexes in keys of those that sign, in order of SignsFrom; at least one
	es256   []*ecdsa.PublicKey  // by the index in keys; nil for a key of the other scheme
	ed25519 []ed25519.PublicKey // by the index in keys; nil for a key of the other scheme
	margin  int64               // in seconds
	now     func() time.Time

	verified *[256]atomic.Pointer[verified] // a cache, by the first byte of the digest
}

// NewKeySet returns a set with one key that signs and legacy keys that only verify. The
// arguments are labels of public keys. It ignores repeated labels.
func NewKeySet(current string, legacy []string) (*KeySet, error) {
	return NewKeySetOf(current, "", legacy)
}

// NewKeySetOf is NewKeySet with the URI of the key that signs.
func NewKeySetOf(current, uri string, legacy []string) (*KeySet, error) {
	if !strings.HasPrefix(current, schemeES256+":") {
		return nil, errors.New("the current public key is not an es256 key: ed25519 keys only verify old certificates, list them as legacy keys")
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

// NewVerifyingKey returns a set of one labelled key of either scheme. The set accepts the
// key at any time.
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

// MaxKeys is the most keys of a set: verifiers refuse a longer list.
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

// Verify checks that an accepted key, current or retired, signed a message (SPEC 5.6):
// es256 signs SHA-256(message), ed25519 the message. The error wraps ErrMalformed or
// ErrNotVerified.
func (k *KeySet) Verify(message []byte, signature string) error {
	_, err := k.SignerOf(message, signature)
	return err
}

// SignerOf returns the key that signed a message. Its errors are those of Verify.
func (k *KeySet) SignerOf(message []byte, signature string) (Key, error) {
	scheme, raw, err := parseSignature(signature)
	if err != nil {
		return Key{}, err
	}
	if scheme == schemeES256 {
		return k.signerES256(sha256.Sum256(message), raw)
	}
	for i, public := range k.ed25519 {
		// RFC 8032 5.1.7: crypto/ed25519 refuses an S that is not below the group order.
		if public != nil && ed25519.Verify(public, message, raw) {
			return k.accepted(i)
		}
	}
	return Key{}, ErrNotVerified
}

// SignedBy returns the key that signed a SHA-256 digest with es256. The error wraps
// ErrMalformed or ErrNotVerified. For an ed25519 signature it is ErrNotVerified, because
// ed25519 signs the message and not its digest.
func (k *KeySet) SignedBy(digest [32]byte, signature string) (Key, error) {
	scheme, raw, err := parseSignature(signature)
	if err != nil {
		return Key{}, err
	}
	if scheme != schemeES256 {
		return Key{}, fmt.Errorf("%w: %s signs the message, not its digest", ErrNotVerified, scheme)
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

// verified is an es256 signature and the key under which it verified. KeySet caches up to
// 256 of them, because a process soon verifies again what it has just signed.
type verified struct {
	digest [32]byte
	raw    string
	key    int // index in KeySet.keys
}

// remember caches a signature that its signer has just verified under the key.
func (k *KeySet) remember(digest [32]byte, signature, label string) {
	_, raw, err := parseSignature(signature)
	for i, key := range k.keys {
		if err == nil && key.PublicKey == label && k.es256[i] != nil {
			k.verified[digest[0]].Store(&verified{digest, string(raw), i})
		}
	}
}

// accepted returns the key at index i. It returns ErrNotVerified if the key is not
// accepted yet.
func (k *KeySet) accepted(i int) (Key, error) {
	key := k.at(i, k.now().Unix())
	if key.State == StateNext {
		return Key{}, fmt.Errorf("%w: %s signs from %s on", ErrNotVerified, key.PublicKey, clock(*key.SignsFrom))
	}
	return key, nil
}

// clock formats unix seconds for errors.
func clock(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }
