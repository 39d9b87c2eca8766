package signing

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrMalformed marks a signature that is not of the form of SPEC 5.6,
	// whatever the keys are.
	ErrMalformed = errors.New("malformed signature")

	// ErrNotVerified marks a well-formed signature that no key of the set made
	// over what was given.
	ErrNotVerified = errors.New("the signature verifies under no key of the set")
)

// The states of a key, in the order a rotation takes it through them.
const (
	StateNext    = "next"    // published before it signs
	StateCurrent = "current" // signs now; exactly one
	StateRetired = "retired" // signed once, verifies for ever
)

// Key is a published key and what it may have signed.
type Key struct {
	PublicKey string // its label, es256:HEX or ed25519:HEX
	State     string

	// RetiredAt is when it stopped signing, unix seconds; nil where nobody wrote
	// it down. Of a retired key alone.
	RetiredAt *int64

	// TreeSize closes a retired key: no leaf at this index or above is its own,
	// whoever holds it now. nil: what was pending when it retired may still be
	// logged under it. Of a retired key alone.
	TreeSize *int64
}

// MayHold tells whether the leaf at the index may be of a certificate that this
// key signed.
func (k Key) MayHold(leafIndex int64) bool { return k.TreeSize == nil || leafIndex < *k.TreeSize }

// Closed tells whether the key has a last leaf: nothing new is to be signed with
// it.
func (k Key) Closed() bool { return k.TreeSize != nil }

// KeySet is the keys a deployment's signatures are verified under: the current
// one, those it replaced, for ever (SPEC 9.6), and those that will replace it. It
// comes from configuration, never from a table that a database writer could add
// to. It does not change and is safe for concurrent use.
type KeySet struct {
	keys    []Key
	current string
	es256   []*ecdsa.PublicKey  // beside keys; nil where the key is of the other scheme
	ed25519 []ed25519.PublicKey // likewise
}

// NewKeySet reads labelled keys: `es256:` and 66 lower-case hex digits, or, for
// legacy keys only, `ed25519:` and 64. A legacy label that repeats the current
// key or another legacy one is left out, so that one list may serve both sides
// of a rotation.
func NewKeySet(current string, legacy []string) (*KeySet, error) {
	if !strings.HasPrefix(current, schemeES256+":") {
		return nil, errors.New("the current public key is not an es256 one: ed25519 keys only verify old certificates, list them as legacy keys")
	}
	k := &KeySet{}
	if err := k.add(Key{PublicKey: current, State: StateCurrent}); err != nil {
		return nil, fmt.Errorf("the current public key: %w", err)
	}
	for i, label := range legacy {
		if k.has(label) {
			continue
		}
		if err := k.add(Key{PublicKey: label, State: StateRetired}); err != nil {
			return nil, fmt.Errorf("legacy public key %d: %w", i, err)
		}
	}
	return k, nil
}

// NewVerifyingKey reads one labelled key of either scheme into a set of its
// own, for a reader who trusts keys and does not care which of them signs now:
// an auditor with a certificate, not a deployment.
func NewVerifyingKey(label string) (*KeySet, error) {
	k := &KeySet{}
	if err := k.add(Key{PublicKey: label, State: StateCurrent}); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *KeySet) has(label string) bool {
	return slices.ContainsFunc(k.keys, func(other Key) bool { return other.PublicKey == label })
}

// MaxKeys is the most keys of a set: a verifier reads no more (the published key
// set and the status would be refused).
const MaxKeys = 1000

func (k *KeySet) add(key Key) error {
	if len(k.keys) == MaxKeys {
		return fmt.Errorf("a key too many: a set holds %d at most, and verifiers read no more", MaxKeys)
	}
	es, ed, err := parseLabel(key.PublicKey)
	if err != nil {
		return err
	}
	if key.State == StateCurrent {
		k.current = key.PublicKey
	}
	k.keys, k.es256, k.ed25519 = append(k.keys, key), append(k.es256, es), append(k.ed25519, ed)
	return nil
}

// Current is the label of the key that signs now.
func (k *KeySet) Current() string { return k.current }

// Keys is all keys, in the order they were given. The caller MUST NOT write
// through their pointers.
func (k *KeySet) Keys() []Key { return slices.Clone(k.keys) }

// Legacy is the labels of the retired and of the next keys, in the order they
// were given; never nil. With the current key they are all that a verifier
// accepts (SPEC 2.8, legacy_pubkeys): the next keys are among them so that a
// reader of the status accepts their first signature, however old its copy.
func (k *KeySet) Legacy() []string {
	labels := []string{}
	for _, key := range k.keys {
		if key.State != StateCurrent {
			labels = append(labels, key.PublicKey)
		}
	}
	return labels
}

// Accepted is the labels of the keys under which something new may be signed
// and found good: all but the closed ones.
func (k *KeySet) Accepted() []string {
	var labels []string
	for _, key := range k.keys {
		if !key.Closed() {
			labels = append(labels, key.PublicKey)
		}
	}
	return labels
}

// CheckSigner refuses a signer whose key is not the current one: what it signs
// would not be what verifiers are told to expect.
func (k *KeySet) CheckSigner(s *Signer) error {
	if s.PublicKey() == k.current {
		return nil
	}
	held := "is in no set of published keys: publish it first, as a next key, or open the signer of the published key"
	for _, key := range k.keys {
		if key.PublicKey == s.PublicKey() {
			held = "is published as a " + key.State + " key: make it the current one and the old one a retired one, or open the signer of the published key"
		}
	}
	return fmt.Errorf("the signer (%s) holds %s but the published key is %s; the signer's key %s", s.Custody(), s.PublicKey(), k.current, held)
}

// Verify checks a signature of a message: es256 over SHA-256(message), ed25519
// over the message itself. Any key of the signature's scheme may have made it.
// The error is nil, ErrMalformed or ErrNotVerified.
// SPEC 5.6: verification accepts the current key and those legacy keys.
func (k *KeySet) Verify(message []byte, signature string) error {
	_, err := k.SignerOf(message, signature)
	return err
}

// SignerOf is Verify and gives the key that made the signature.
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
			return k.keys[i], nil
		}
	}
	return Key{}, ErrNotVerified
}

// SignedBy gives the key of an es256 signature of a SHA-256 digest. An ed25519
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
	r, s := rawES256(raw)
	for i, public := range k.es256 {
		if public != nil && ecdsa.Verify(public, digest[:], r, s) {
			return k.keys[i], nil
		}
	}
	return Key{}, ErrNotVerified
}
