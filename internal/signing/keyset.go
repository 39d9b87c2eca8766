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

// KeySet is the keys a deployment's signatures are verified under: the current
// one, and those it replaced, for ever (SPEC 9.6). It comes from configuration,
// never from a table that a database writer could add to. It does not change and
// is safe for concurrent use.
type KeySet struct {
	current string
	legacy  []string
	es256   []*ecdsa.PublicKey
	ed25519 []ed25519.PublicKey
}

// NewKeySet reads labelled keys: `es256:` and 66 lower-case hex digits, or, for
// legacy keys only, `ed25519:` and 64. A legacy label that repeats the current
// key or another legacy one is left out, so that one list may serve both sides
// of a rotation.
func NewKeySet(current string, legacy []string) (*KeySet, error) {
	if !strings.HasPrefix(current, schemeES256+":") {
		return nil, errors.New("the current public key is not an es256 one: ed25519 keys only verify old certificates, list them as legacy keys")
	}
	k := &KeySet{current: current}
	if err := k.add(current); err != nil {
		return nil, fmt.Errorf("the current public key: %w", err)
	}
	for i, label := range legacy {
		if label == current || slices.Contains(k.legacy, label) {
			continue
		}
		if err := k.add(label); err != nil {
			return nil, fmt.Errorf("legacy public key %d: %w", i, err)
		}
		k.legacy = append(k.legacy, label)
	}
	return k, nil
}

func (k *KeySet) add(label string) error {
	es, ed, err := parseLabel(label)
	switch {
	case err != nil:
		return err
	case es != nil:
		k.es256 = append(k.es256, es)
	default:
		k.ed25519 = append(k.ed25519, ed)
	}
	return nil
}

// Current is the label of the key that signs now.
func (k *KeySet) Current() string { return k.current }

// Legacy is the labels of the retired keys, in the order they were given; never
// nil (SPEC 2.8, legacy_pubkeys).
func (k *KeySet) Legacy() []string { return append([]string{}, k.legacy...) }

// CheckSigner refuses a signer whose key is not the current one: what it signs
// would not be what verifiers are told to expect.
func (k *KeySet) CheckSigner(s *Signer) error {
	if s.PublicKey() == k.current {
		return nil
	}
	return fmt.Errorf("the signer (%s) holds %s but the published key is %s: publish the signer's key and list the old one as a legacy key, or open the signer of the published key",
		s.Custody(), s.PublicKey(), k.current)
}

// Verify checks a signature of a message: es256 over SHA-256(message), ed25519
// over the message itself. Any key of the signature's scheme may have made it.
// The error is nil, ErrMalformed or ErrNotVerified.
// SPEC 5.6: verification accepts the current key and those legacy keys.
func (k *KeySet) Verify(message []byte, signature string) error {
	scheme, raw, err := parseSignature(signature)
	if err != nil {
		return err
	}
	if scheme == schemeEd25519 {
		for _, public := range k.ed25519 {
			// RFC 8032 5.1.7; the standard library refuses an S that is not
			// below the order.
			if ed25519.Verify(public, message, raw) {
				return nil
			}
		}
		return ErrNotVerified
	}
	return k.verifyES256(sha256.Sum256(message), raw)
}

// VerifyDigest checks an es256 signature of a SHA-256 digest. An ed25519
// signature is ErrNotVerified, as it signs a message and not a digest. The error
// is nil, ErrMalformed or ErrNotVerified.
func (k *KeySet) VerifyDigest(digest [32]byte, signature string) error {
	scheme, raw, err := parseSignature(signature)
	if err != nil {
		return err
	}
	if scheme != schemeES256 {
		return fmt.Errorf("%w: an %s signature is of a message, not of a digest", ErrNotVerified, scheme)
	}
	return k.verifyES256(digest, raw)
}

func (k *KeySet) verifyES256(digest [32]byte, raw []byte) error {
	r, s := rawES256(raw)
	for _, public := range k.es256 {
		if ecdsa.Verify(public, digest[:], r, s) {
			return nil
		}
	}
	return ErrNotVerified
}

// NewVerifyingKey reads one labelled key of either scheme into a set of its
// own, for a reader who trusts keys and does not care which of them signs now:
// an auditor with a certificate, not a deployment.
func NewVerifyingKey(label string) (*KeySet, error) {
	k := &KeySet{current: label}
	if err := k.add(label); err != nil {
		return nil, err
	}
	return k, nil
}
