package signing

import (
	"bytes"
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

// parseDER reads an ECDSA signature in DER (RFC 3279 2.2.3). It returns r and the lower of s and
// n−s, where n is the order of P-256. A signature verifies with s and also with n−s. If both were
// accepted, anyone could turn one valid signature into a second one.
func parseDER(der []byte) (r, s *big.Int, err error) {
	var sig struct{ R, S *big.Int }
	if rest, err := asn1.Unmarshal(der, &sig); err != nil || len(rest) != 0 {
		return nil, nil, errors.New("not one DER sequence of two integers")
	}
	// encoding/asn1 ignores extra elements inside the sequence. A new encoding of `sig` lacks
	// these elements, so it differs from `der`. It also differs if `der` is not the shortest encoding.
	if again, err := asn1.Marshal(sig); err != nil || !bytes.Equal(again, der) {
		return nil, nil, errors.New("not strict DER")
	}
	if !inRange(sig.R) || !inRange(sig.S) {
		return nil, nil, errors.New("r or s is outside [1, n-1], where n is the order of P-256")
	}
	if sig.S.Cmp(halfOrder) > 0 {
		sig.S.Sub(order, sig.S)
	}
	return sig.R, sig.S, nil
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

// ES256 returns the public key of an es256 label, or an error for any other label.
func ES256(label string) (*ecdsa.PublicKey, error) {
	public, _, err := parseLabel(label)
	if err == nil && public == nil {
		err = fmt.Errorf("%.80q is not the label of an es256 key", label)
	}
	return public, err
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

// es256Label returns `es256:` and the compressed SEC1 form of a P-256 key in hex (SPEC 2.8).
func es256Label(public *ecdsa.PublicKey) (string, error) {
	if public == nil || public.Curve != elliptic.P256() {
		return "", errors.New("not a P-256 key: es256 signs with P-256 keys only")
	}
	point, err := public.Bytes() // 04 ‖ x ‖ y, checked to be on the curve
	if err != nil {
		return "", fmt.Errorf("public key: %w", err)
	}
	compressed := append([]byte{2 | point[64]&1}, point[1:33]...)
	return schemeES256 + ":" + hex.EncodeToString(compressed), nil
}

// parseLabel returns exactly one of the two keys, or an error.
func parseLabel(label string) (*ecdsa.PublicKey, ed25519.PublicKey, error) {
	scheme, digits, _ := strings.Cut(label, ":")
	switch scheme {
	case schemeES256:
		raw, err := canon.ParseHex(digits, 33)
		if err != nil {
			return nil, nil, fmt.Errorf("the part after the colon has %w", err)
		}
		x, y := elliptic.UnmarshalCompressed(elliptic.P256(), raw)
		if x == nil {
			return nil, nil, errors.New("not a compressed point of P-256")
		}
		point := make([]byte, 65)
		point[0] = 4
		x.FillBytes(point[1:33])
		y.FillBytes(point[33:])
		public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
		return public, nil, err
	case schemeEd25519:
		raw, err := canon.ParseHex(digits, ed25519.PublicKeySize)
		if err != nil {
			return nil, nil, fmt.Errorf("the part after the colon has %w", err)
		}
		if err := checkEd25519(raw); err != nil {
			return nil, nil, err
		}
		return nil, raw, nil
	default:
		return nil, nil, errors.New("not of the form es256:HEX or ed25519:HEX")
	}
}

// CheckLabel returns an error if the label is not a valid public key.
func CheckLabel(label string) error {
	_, _, err := parseLabel(label)
	return err
}

// VerifyLabel verifies a signature of a message with the public key in label. For an invalid label
// it returns the error of CheckLabel. Any other error wraps ErrMalformed or ErrNotVerified.
func VerifyLabel(label string, message []byte, signature string) error {
	key, err := NewVerifyingKey(label)
	if err != nil {
		return err
	}
	return key.Verify(message, signature)
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
