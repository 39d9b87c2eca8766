//go:build pkcs11 && cgo

package pkcs11

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/asn1"
	"fmt"
	"math/big"
	"slices"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

// form says how PKCS#11 represents the keys and signatures of one provider.Kind.
type form struct {
	keyType   uint   // CKA_KEY_TYPE
	mechanism uint   // the CKM_ constant of the signature scheme
	need      string // text for errors: the required type of key, and how to generate one
	parse     func(params, point []byte) (publicKey, error)
	signature func(raw []byte) ([]byte, error) // converts the token's signature to the encoding that Provider.Sign returns
}

type publicKey interface{ Equal(crypto.PublicKey) bool }

// ckkECEdwards and ckmEDDSA are constants of PKCS#11 3.0 that the Go binding lacks.
const (
	ckkECEdwards = 0x40
	ckmEDDSA     = 0x1057
)

const (
	needP256    = "es256 needs a P-256 key; generate one with `pkcs11-tool --keypairgen --key-type EC:prime256v1`"
	needEd25519 = "a log key is an Ed25519 key; generate one with `pkcs11-tool --keypairgen --key-type EC:edwards25519`"
)

var forms = map[provider.Kind]form{
	provider.P256: {cryptoki.CKK_EC, cryptoki.CKM_ECDSA, needP256, parseP256, func(raw []byte) ([]byte, error) {
		// raw is r‖s, and r and s have equal lengths (PKCS#11 2.3.1). Package signing checks
		// their values.
		half := len(raw) / 2
		return asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(raw[:half]), new(big.Int).SetBytes(raw[half:])})
	}},
	provider.Ed25519: {ckkECEdwards, ckmEDDSA, needEd25519, parseEd25519, func(raw []byte) ([]byte, error) { return raw, nil }},
}

// paramsP256 is the CKA_EC_PARAMS of P-256: the curve's object identifier in DER
// (RFC 5480 2.1.1.1).
var paramsP256 = []byte{6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7}

// paramsEd25519 lists the values of CKA_EC_PARAMS that tokens use for Ed25519: the object
// identifier of RFC 8410, the curve's name (PKCS#11 3.0 2.3.5), and the object identifier
// that was in use before RFC 8410.
var paramsEd25519 = [][]byte{
	{6, 3, 0x2b, 0x65, 0x70},
	append([]byte{0x13, 12}, "edwards25519"...),
	{6, 9, 0x2b, 6, 1, 4, 1, 0xda, 0x47, 15, 1},
}

// parseP256 returns a P-256 public key. params is CKA_EC_PARAMS. point is CKA_EC_POINT: an
// uncompressed point, bare or wrapped (see unwrapped).
func parseP256(params, point []byte) (publicKey, error) {
	if !bytes.Equal(params, paramsP256) {
		var curve asn1.ObjectIdentifier
		_, _ = asn1.Unmarshal(params, &curve)
		return nil, fmt.Errorf("the key's CKA_EC_PARAMS (%x, curve %s) do not name P-256: %s", params, curve, needP256)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), unwrapped(point, 65))
	if err != nil {
		return nil, fmt.Errorf("the key's CKA_EC_POINT of %d bytes is not an uncompressed point of P-256: %w", len(point), err)
	}
	return public, nil
}

// parseEd25519 returns an Ed25519 public key. params is CKA_EC_PARAMS. point is
// CKA_EC_POINT: the raw key, bare or wrapped (see unwrapped).
func parseEd25519(params, point []byte) (publicKey, error) {
	if !slices.ContainsFunc(paramsEd25519, func(form []byte) bool { return bytes.Equal(params, form) }) {
		return nil, fmt.Errorf("the key's CKA_EC_PARAMS (%x) do not name Ed25519: %s", params, needEd25519)
	}
	if point = unwrapped(point, ed25519.PublicKeySize); len(point) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("the key's CKA_EC_POINT has %d bytes, but an Ed25519 key has %d", len(point), ed25519.PublicKeySize)
	}
	return ed25519.PublicKey(point), nil
}

// unwrapped removes the DER OCTET STRING in which a token wraps a point of n bytes
// (PKCS#11 2.3.3). Some tokens return bare points, which unwrapped does not change.
func unwrapped(point []byte, n int) []byte {
	if len(point) == n+2 && point[0] == 4 && int(point[1]) == n {
		return point[2:]
	}
	return point
}
