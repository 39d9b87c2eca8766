package keys

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"filippo.io/edwards25519"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

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

// FromDER returns the text of an ECDSA signature in DER (RFC 3279 2.2.3), with r and the lower of s
// and n−s, where n is the order of P-256. A signature verifies with s and also with n−s. If both
// were accepted, anyone could turn one valid signature into a second one.
func FromDER(der []byte) (signature string, err error) {
	var sig struct{ R, S *big.Int }
	if rest, err := asn1.Unmarshal(der, &sig); err != nil || len(rest) != 0 {
		return "", errors.New("not one DER sequence of two integers")
	}
	// encoding/asn1 ignores extra elements inside the sequence. A new encoding of `sig` lacks
	// these elements, so it differs from `der`. It also differs if `der` is not the shortest encoding.
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

// formatES256 returns a signature as `es256:` and 128 hex digits, r‖s (SPEC 5.6).
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

// DER returns an es256 signature as an ASN.1 sequence (RFC 3279 2.2.3), the form
// that X.509 and signed notes use.
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

// checkEd25519 refuses two kinds of keys that crypto/ed25519 accepts: encodings of a point that are
// not canonical (RFC 8032 5.1.3), and points of small order. Under a point of small order anyone
// can make signatures. The key of all zeros, a usual placeholder, is such a point.
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
