package signing

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/canon"
)

// es256Label writes a P-256 key as `es256:` and its compressed SEC1 form.
// SPEC 2.8: es256 is an ECDSA P-256 key in compressed SEC1 form.
func es256Label(public *ecdsa.PublicKey) (string, error) {
	if public == nil || public.Curve != elliptic.P256() {
		return "", errors.New("not a P-256 key, and es256 signs with no other")
	}
	point, err := public.Bytes() // 04 ‖ x ‖ y, checked to be on the curve
	if err != nil {
		return "", fmt.Errorf("public key: %w", err)
	}
	compressed := append([]byte{2 | point[64]&1}, point[1:33]...)
	return schemeES256 + ":" + hex.EncodeToString(compressed), nil
}

// parseLabel reads a labelled public key; exactly one of the two results is set.
func parseLabel(label string) (*ecdsa.PublicKey, ed25519.PublicKey, error) {
	scheme, digits, _ := strings.Cut(label, ":")
	switch scheme {
	case schemeES256:
		raw, err := canon.ParseHex(digits, 33)
		if err != nil {
			return nil, nil, fmt.Errorf("after the colon it has %w", err)
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
			return nil, nil, fmt.Errorf("after the colon it has %w", err)
		}
		if err := checkEd25519(raw); err != nil {
			return nil, nil, err
		}
		return nil, raw, nil
	default:
		return nil, nil, errors.New("a key label is es256:HEX or ed25519:HEX")
	}
}

// CheckLabel returns why a labelled public key is none.
func CheckLabel(label string) error {
	_, _, err := parseLabel(label)
	return err
}

// VerifyLabel checks a signature of a message under one labelled key, for a reader who
// trusts it. The error is one of the label, ErrMalformed or ErrNotVerified.
func VerifyLabel(label string, message []byte, signature string) error {
	key, err := NewVerifyingKey(label)
	if err != nil {
		return err
	}
	return key.Verify(message, signature)
}

// smallOrder are the y coordinates of the eight points of Ed25519 whose order
// divides 8, as RFC 8032 5.1.2 encodes them, without the sign of x.
var smallOrder = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
}

// checkEd25519 refuses what crypto/ed25519 takes without a word: bytes that are
// no point (RFC 8032 5.1.3), a y that is not reduced, and the points of small
// order, under which anyone can make signatures; all zeros, the usual
// placeholder, is one of them.
func checkEd25519(key []byte) error {
	littleEndian := slices.Clone(key)
	littleEndian[31] &= 0x7f
	if slices.Contains(smallOrder, hex.EncodeToString(littleEndian)) {
		return errors.New("a point of small order: it is no one's key")
	}
	slices.Reverse(littleEndian)
	y := new(big.Int).SetBytes(littleEndian)
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	if y.Cmp(p) >= 0 {
		return errors.New("the y coordinate is not below 2^255-19")
	}

	// A point has x² = (y²−1) / (d·y²+1) with d = −121665/121666: u/v is a
	// square where u·v is.
	one := big.NewInt(1)
	d := new(big.Int).ModInverse(big.NewInt(121666), p)
	d.Mul(d, big.NewInt(-121665))
	y2 := new(big.Int).Mul(y, y)
	u := new(big.Int).Sub(y2, one)
	v := d.Mul(d, y2).Add(d, one)
	uv := u.Mul(u, v).Mod(u, p)
	if big.Jacobi(uv, p) != 1 {
		return errors.New("not a point of Ed25519")
	}
	return nil
}
