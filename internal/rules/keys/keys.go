// Package keys defines public keys, signatures and key sets.
//
// A public key and a signature are text: `<scheme>:<hex>`. The text of a public key is the key's
// label. The scheme `es256` is ECDSA over P-256: the key is in compressed SEC1 form, and the
// signature is r‖s, with s in the lower half of the order. A service signs with `es256` only.
// `ed25519` verifies old certificates and seat keys.
//
// Package signing makes signatures. This package never reads a clock: times are unix seconds, which
// the caller gives.
package keys

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"filippo.io/edwards25519"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

var (
	// ErrMalformed is returned when a signature does not have the form of SPEC 5.6.
	ErrMalformed = errors.New("malformed signature")

	// ErrNotVerified is returned when a well-formed signature verifies under none of the accepted keys.
	ErrNotVerified = errors.New("the signature verifies under no accepted key of the set")
)

// The published states of a key, in the order in which a key passes through them.
const (
	Next    = "next"    // will sign later
	Current = "current" // signs at the time now + the margin; exactly one key has this state
	Retired = "retired" // replaced, or to be replaced within one margin; its signatures still verify, but see Key.TreeSize
)

// Key is a public key with what is configured or published about it. Only Label is required.
type Key struct {
	Label string `json:"pubkey"`          // es256:HEX or ed25519:HEX
	State string `json:"state,omitempty"` // Next, Current or Retired; "" if unknown

	// SignsFrom is the unix time at which the key begins to sign, and URI names its private key in a
	// form that signing.Open accepts. Both are unset for a key that the document lists as retired.
	SignsFrom *int64 `json:"signs_from,omitempty"`
	URI       string `json:"uri,omitempty"`

	// RetiredAt is the unix time at which a retired key stops signing; nil if unknown.
	RetiredAt *int64 `json:"retired_at,omitempty"`

	// TreeSize closes a retired key: what the key signed is valid only at a leaf index below
	// TreeSize. nil means that the log may still get certificates that the key signed.
	TreeSize *int64 `json:"tree_size,omitempty"`

	// Disowned (for a stolen key) allows TreeSize to invalidate certificates that the key already signed.
	Disowned bool `json:"disowned,omitempty"`

	Development bool `json:"-"` // the deployment declares the key a development key

	public public // of Label; the zero value if Label was not parsed or is not usable
}

type public struct { // at most one is set
	es256   *ecdsa.PublicKey
	ed25519 ed25519.PublicKey
}

func (p public) verify(message []byte, digest [32]byte, scheme string, raw []byte) bool {
	if scheme == schemeES256 {
		r, s := rawES256(raw)
		return p.es256 != nil && ecdsa.Verify(p.es256, digest[:], r, s)
	}
	// ed25519.Verify refuses an S that is not below the group order (RFC 8032 5.1.7).
	return p.ed25519 != nil && ed25519.Verify(p.ed25519, message, raw)
}

// New returns a key with this label and nothing else known about it.
func New(label string) (Key, error) {
	public, err := parseLabel(label)
	return Key{Label: label, public: public}, err
}

func (k Key) parsed() (public, error) {
	if k.public.es256 != nil || k.public.ed25519 != nil {
		return k.public, nil
	}
	return parseLabel(k.Label)
}

// ES256 returns the public key, or an error if it is not an es256 key.
func (k Key) ES256() (*ecdsa.PublicKey, error) {
	public, err := k.parsed()
	if err == nil && public.es256 == nil {
		err = fmt.Errorf("%.80q is not the label of an es256 key", k.Label)
	}
	return public.es256, err
}

// Problem says why Label is not a usable public key. It returns nil if Label is usable.
func (k Key) Problem() error {
	_, err := k.parsed()
	return err
}

// MaySignLeaf reports whether the key was allowed to sign a leaf at this index, or a tree head whose last
// leaf has this index. TreeSize binds whatever State is, because State depends on the reader's clock.
func (k Key) MaySignLeaf(leafIndex int64) bool { return k.TreeSize == nil || leafIndex < *k.TreeSize }

// Closed reports whether the key is closed (see TreeSize).
func (k Key) Closed() bool { return k.TreeSize != nil }

// Verify checks that the key signed a message (SPEC 5.6). es256 signs SHA-256(message), and ed25519
// signs the message itself. The error is that of Problem, or wraps ErrMalformed or ErrNotVerified.
func (k Key) Verify(message []byte, signature string) error {
	public, err := k.parsed()
	if err != nil {
		return err
	}
	scheme, raw, err := parseSignature(signature)
	if err == nil && !public.verify(message, sha256.Sum256(message), scheme, raw) {
		err = ErrNotVerified
	}
	return err
}

// Verify checks a signature under the key with this label, as Key.Verify does.
func Verify(label string, message []byte, signature string) error {
	return Key{Label: label}.Verify(message, signature)
}

// Check returns an error if the label is not a usable public key.
func Check(label string) error { return Key{Label: label}.Problem() }

// List is a list of keys, as a deployment publishes it or a verifier trusts it.
type List []Key

// Of returns keys with these labels, also with unusable ones: Key.Problem reports them.
func Of(labels ...string) List {
	list := make(List, len(labels))
	for i, label := range labels {
		list[i], _ = New(label)
	}
	return list
}

// In returns the keys in a state.
func (l List) In(state string) (found List) {
	for _, k := range l {
		if k.State == state {
			found = append(found, k)
		}
	}
	return found
}

// Labels returns the labels of the keys. The slice is never nil.
func (l List) Labels() []string {
	labels := make([]string, len(l))
	for i, k := range l {
		labels[i] = k.Label
	}
	return labels
}

// Current returns the label of the key in the state Current, or "".
func (l List) Current() string {
	for _, k := range l {
		if k.State == Current {
			return k.Label
		}
	}
	return ""
}

func (l List) find(label string) int {
	return slices.IndexFunc(l, func(k Key) bool { return k.Label == label })
}

// SignerOf returns the key that signed a message. The error wraps ErrMalformed or ErrNotVerified.
func (l List) SignerOf(message []byte, signature string) (Key, error) {
	scheme, raw, err := parseSignature(signature)
	if err != nil {
		return Key{}, err
	}
	return l.signer(message, sha256.Sum256(message), scheme, raw)
}

// SignedBy returns the key that signed a SHA-256 digest with es256. An ed25519 signature is never verified:
// it signs the message itself. The error wraps ErrMalformed or ErrNotVerified.
func (l List) SignedBy(digest [32]byte, signature string) (Key, error) {
	scheme, raw, err := parseSignature(signature)
	if err == nil && scheme != schemeES256 {
		err = fmt.Errorf("%w: %s signs the message itself, but only the digest was given", ErrNotVerified, scheme)
	}
	if err != nil {
		return Key{}, err
	}
	return l.signer(nil, digest, scheme, raw)
}

func (l List) signer(message []byte, digest [32]byte, scheme string, raw []byte) (Key, error) {
	for _, k := range l {
		if public, err := k.parsed(); err == nil && public.verify(message, digest, scheme, raw) {
			return k, nil
		}
	}
	return Key{}, ErrNotVerified
}

// The signature schemes, which prefix the texts of public keys (labels) and of signatures (SPEC 5.6).
const (
	schemeES256   = "es256"
	schemeEd25519 = "ed25519"
)

var (
	order     = elliptic.P256().Params().N
	halfOrder = new(big.Int).Rsh(order, 1)
)

func inRange(v *big.Int) bool { return v.Sign() > 0 && v.Cmp(order) < 0 }

// FromDER returns the text of an ECDSA signature in DER (RFC 3279 2.2.3), with the lower of s and n−s. Both
// verify: if both were accepted, anyone could turn one valid signature into a second one.
func FromDER(der []byte) (signature string, err error) {
	var sig struct{ R, S *big.Int }
	if rest, err := asn1.Unmarshal(der, &sig); err != nil || len(rest) != 0 {
		return "", errors.New("not one DER sequence of two integers")
	}
	// A new encoding of `sig` has no extra elements in the sequence, and is the shortest one.
	if again, err := asn1.Marshal(sig); err != nil || !bytes.Equal(again, der) {
		return "", errors.New("not strict DER")
	}
	if !inRange(sig.R) || !inRange(sig.S) {
		return "", errors.New("r or s is outside [1, n-1], where n is the order of P-256")
	}
	if sig.S.Cmp(halfOrder) > 0 {
		sig.S.Sub(order, sig.S)
	}
	return formatES256(sig.R, sig.S), nil
}

func formatES256(r, s *big.Int) string {
	var raw [64]byte
	r.FillBytes(raw[:32])
	s.FillBytes(raw[32:])
	return schemeES256 + ":" + hex.EncodeToString(raw[:])
}

// parseSignature reads `<scheme>:<128 lower-case hex digits>`. In an es256 signature, r and s MUST
// be in [1, n−1], and s MUST be at most n/2. The error wraps ErrMalformed and names the reason.
func parseSignature(text string) (scheme string, raw []byte, err error) {
	scheme, digits, ok := strings.Cut(text, ":")
	if !ok || (scheme != schemeES256 && scheme != schemeEd25519) {
		return "", nil, fmt.Errorf("%w: write es256:HEX or ed25519:HEX", ErrMalformed)
	}
	raw, err = canon.ParseHex(digits, 64)
	if err != nil {
		return "", nil, fmt.Errorf("%w: the part after the colon has %w", ErrMalformed, err)
	}
	if scheme == schemeES256 {
		r, s := rawES256(raw)
		if !inRange(r) || !inRange(s) {
			return "", nil, fmt.Errorf("%w: r or s is outside [1, n-1], where n is the order of P-256", ErrMalformed)
		}
		if s.Cmp(halfOrder) > 0 {
			return "", nil, fmt.Errorf("%w: s is larger than n/2, where n is the order of P-256: write n-s instead (low-S form)", ErrMalformed)
		}
	}
	return scheme, raw, nil
}

func rawES256(raw []byte) (r, s *big.Int) {
	return new(big.Int).SetBytes(raw[:32]), new(big.Int).SetBytes(raw[32:])
}

// DER returns an es256 signature as an ASN.1 sequence, the form that X.509 and signed notes use.
func DER(signature string) ([]byte, error) {
	scheme, raw, err := parseSignature(signature)
	if err != nil {
		return nil, err
	}
	if scheme != schemeES256 {
		return nil, errors.New("not an es256 signature")
	}
	r, s := rawES256(raw)
	return asn1.Marshal(struct{ R, S *big.Int }{r, s})
}

// Label returns the label of a P-256 key or an Ed25519 key (SPEC 2.8).
func Label(public crypto.PublicKey) (string, error) {
	if key, ok := public.(ed25519.PublicKey); ok {
		return schemeEd25519 + ":" + hex.EncodeToString(key), nil
	}
	key, _ := public.(*ecdsa.PublicKey)
	if key == nil || key.Curve != elliptic.P256() {
		return "", errors.New("not a P-256 key: es256 signs with P-256 keys only")
	}
	point, err := key.Bytes() // 04 ‖ x ‖ y, checked to be on the curve
	if err != nil {
		return "", fmt.Errorf("public key: %w", err)
	}
	compressed := append([]byte{2 | point[64]&1}, point[1:33]...)
	return schemeES256 + ":" + hex.EncodeToString(compressed), nil
}

func parseLabel(label string) (public, error) {
	scheme, digits, _ := strings.Cut(label, ":")
	size := map[string]int{schemeES256: 33, schemeEd25519: ed25519.PublicKeySize}[scheme]
	if size == 0 {
		return public{}, errors.New("not of the form es256:HEX or ed25519:HEX")
	}
	raw, err := canon.ParseHex(digits, size)
	if err != nil {
		return public{}, fmt.Errorf("the part after the colon has %w", err)
	}
	if scheme == schemeEd25519 {
		if err := checkEd25519(raw); err != nil {
			return public{}, err
		}
		return public{ed25519: raw}, nil
	}
	x, y := elliptic.UnmarshalCompressed(elliptic.P256(), raw)
	if x == nil {
		return public{}, errors.New("not a compressed point of P-256")
	}
	point := make([]byte, 65)
	point[0] = 4
	x.FillBytes(point[1:33])
	y.FillBytes(point[33:])
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	return public{es256: key}, err
}

// checkEd25519 refuses keys that crypto/ed25519 accepts: points that are not canonical (RFC 8032 5.1.3) or
// of small order, under which anyone can sign. The key of all zeros, a usual placeholder, is such a point.
func checkEd25519(key []byte) error {
	point, err := new(edwards25519.Point).SetBytes(key)
	switch {
	case err != nil:
		return errors.New("not a point of Ed25519")
	case new(edwards25519.Point).MultByCofactor(point).Equal(edwards25519.NewIdentityPoint()) == 1:
		return errors.New("a point of small order, under which anyone can sign: use a generated key")
	case !bytes.Equal(point.Bytes(), key):
		return errors.New("the y coordinate is not below 2^255-19")
	}
	return nil
}
