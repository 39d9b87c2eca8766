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
	// ErrMalformed is returned for a signature that is not of the form of SPEC 5.6,
	// whatever the keys are.
	ErrMalformed = errors.New("malformed signature")

	// ErrNotVerified is returned for a well-formed signature that no accepted key
	// made over what was given.
	ErrNotVerified = errors.New("the signature verifies under no key of the set")
)

// The states that a key is published in, in the order of its life.
const (
	StateNext    = "next"    // will sign; not accepted yet
	StateCurrent = "current" // signs now; exactly one
	StateRetired = "retired" // signed once; verifies for ever
)

// Key is a key of the set. State is its published state at the time of the call
// that returned it.
type Key struct {
	PublicKey string // its label, es256:HEX or ed25519:HEX
	State     string

	// SignsFrom is when the key begins to sign, unix seconds. nil: it never signs
	// again, and URI is empty.
	SignsFrom *int64
	URI       string // where the key signs; see Open

	// RetiredAt is when a retired key stopped signing, unix seconds; nil: unknown.
	RetiredAt *int64

	// TreeSize closes a retired key: no leaf at this index or above is its own,
	// whoever holds it now. nil: what was pending when it retired may still be
	// logged under it.
	TreeSize *int64

	// Disowned says that the key signed above TreeSize and that this was meant: it
	// was stolen.
	Disowned bool
}

// MayHold reports whether the leaf at the index may be of a certificate that this
// key signed.
func (k Key) MayHold(leafIndex int64) bool { return k.TreeSize == nil || leafIndex < *k.TreeSize }

// Closed reports whether the key has a last leaf: nothing new may be signed with
// it.
func (k Key) Closed() bool { return k.TreeSize != nil }

// KeySet is the keys of a deployment and when each signs. It comes from
// configuration, never from a table that a database writer could add to. It does
// not change and is safe for concurrent use. rotation.go has its rules of time.
type KeySet struct {
	keys    []Key
	signs   []int               // indexes of the keys that sign, by SignsFrom; at least one
	es256   []*ecdsa.PublicKey  // beside keys; nil where the key is of the other scheme
	ed25519 []ed25519.PublicKey // likewise
	margin  int64               // seconds
	now     func() time.Time

	verified *[256]atomic.Pointer[verified] // by the first byte of the digest
}

// NewKeySet returns the set of a deployment with one key that signs and labelled
// keys that only verify. A legacy label that repeats another is left out.
func NewKeySet(current string, legacy []string) (*KeySet, error) {
	return NewKeySetOf(current, "", legacy)
}

// NewKeySetOf is NewKeySet with the URI of the key that signs.
func NewKeySetOf(current, uri string, legacy []string) (*KeySet, error) {
	if !strings.HasPrefix(current, schemeES256+":") {
		return nil, errors.New("the current public key is not an es256 one: ed25519 keys only verify old certificates, list them as legacy keys")
	}
	k, err := newKeySet(Key{PublicKey: current, URI: uri, SignsFrom: new(int64)})
	if err != nil {
		return nil, fmt.Errorf("the current public key: %w", err)
	}
	for i, label := range legacy {
		if k.find(label) >= 0 {
			continue
		}
		if err := k.add(Key{PublicKey: label}); err != nil {
			return nil, fmt.Errorf("legacy public key %d: %w", i, err)
		}
	}
	return k, nil
}

// NewVerifyingKey returns a set of one labelled key of either scheme, for a reader
// who trusts the key and does not care whether it signs now.
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

// find returns the index of a label, -1 if the set does not have it.
func (k *KeySet) find(label string) int {
	return slices.IndexFunc(k.keys, func(key Key) bool { return key.PublicKey == label })
}

// MaxKeys is the most keys of a set. Verifiers refuse a longer list.
const MaxKeys = 1000

func (k *KeySet) add(key Key) error {
	if len(k.keys) == MaxKeys {
		return fmt.Errorf("a set holds at most %d keys, as verifiers read no more", MaxKeys)
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

// Verify checks a signature of a message: es256 over SHA-256(message), ed25519
// over the message itself. Any accepted key of the signature's scheme may have
// made it. The error is nil, ErrMalformed or ErrNotVerified.
// SPEC 5.6: verification accepts the current key and those legacy keys.
func (k *KeySet) Verify(message []byte, signature string) error {
	_, err := k.SignerOf(message, signature)
	return err
}

// SignerOf is Verify and returns the key that made the signature.
func (k *KeySet) SignerOf(message []byte, signature string) (Key, error) {
	scheme, raw, err := parseSignature(signature)
	if err != nil {
		return Key{}, err
	}
	if scheme == schemeES256 {
		return k.signerES256(sha256.Sum256(message), raw)
	}
	for i, public := range k.ed25519 {
		// RFC 8032 5.1.7; the standard library refuses an S that is not below the
		// order.
		if public != nil && ed25519.Verify(public, message, raw) {
			return k.accepted(i)
		}
	}
	return Key{}, ErrNotVerified
}

// SignedBy returns the key of an es256 signature of a SHA-256 digest. An ed25519
// signature is ErrNotVerified, as it signs a message and not a digest. The error
// is nil, ErrMalformed or ErrNotVerified.
func (k *KeySet) SignedBy(digest [32]byte, signature string) (Key, error) {
	scheme, raw, err := parseSignature(signature)
	if err != nil {
		return Key{}, err
	}
	if scheme != schemeES256 {
		return Key{}, fmt.Errorf("%w: an %s signature is of a message, not of a digest", ErrNotVerified, scheme)
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

// verified is an es256 signature that verified under the key at an index of the
// set. A few are remembered: a process meets its own signature again at once.
type verified struct {
	digest [32]byte
	raw    string
	key    int
}

// remember notes a signature that its signer has just verified under the key.
func (k *KeySet) remember(digest [32]byte, signature, label string) {
	_, raw, err := parseSignature(signature)
	for i, key := range k.keys {
		if err == nil && key.PublicKey == label && k.es256[i] != nil {
			k.verified[digest[0]].Store(&verified{digest, string(raw), i})
		}
	}
}

// accepted returns the key at i as it is now, or ErrNotVerified where its time is
// yet to come.
func (k *KeySet) accepted(i int) (Key, error) {
	key := k.at(i, k.now().Unix())
	if key.State == StateNext {
		return Key{}, fmt.Errorf("%w: %s signs from %s on", ErrNotVerified, key.PublicKey, clock(*key.SignsFrom))
	}
	return key, nil
}

// clock renders unix seconds for people.
func clock(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }
