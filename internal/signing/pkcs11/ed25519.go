//go:build pkcs11 && cgo

package pkcs11

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
)

// Of PKCS#11 3.0, which the binding does not have.
const (
	ckkECEdwards = 0x40
	ckmEDDSA     = 0x1057
)

const needEd25519 = "a log key is an Ed25519 key (pkcs11-tool --keypairgen --key-type EC:edwards25519)"

var edwards = kind{ckkECEdwards, ckmEDDSA, needEd25519, parseEd25519}

// Ed25519 is a log key in a PKCS#11 token.
type Ed25519 struct{ *Provider }

// OpenEd25519 is Open for a log key.
func OpenEd25519(_ context.Context, rest string) (Ed25519, error) {
	p, err := open(rest, edwards)
	return Ed25519{p}, err
}

// Key logs in to the token and finds the key, while ctx lasts.
func (e Ed25519) Key(ctx context.Context) (ed25519.PublicKey, string, error) {
	if err := e.library.call(ctx, e.at.token, e.connect); err != nil {
		return nil, "", err
	}
	return e.public.(ed25519.PublicKey), e.custody, nil // as its kind parses it
}

// Sign signs a message. It waits as sign says.
func (e Ed25519) Sign(ctx context.Context, message []byte) ([]byte, error) {
	return e.sign(ctx, message)
}

// paramsEd25519 are the forms of CKA_EC_PARAMS that tokens have for Ed25519: the
// object identifier of RFC 8410, the curve's name (PKCS#11 3.0 2.3.5), and the
// identifier from before RFC 8410.
var paramsEd25519 = [][]byte{
	{6, 3, 0x2b, 0x65, 0x70},
	append([]byte{0x13, 12}, "edwards25519"...),
	{6, 9, 0x2b, 6, 1, 4, 1, 0xda, 0x47, 15, 1},
}

// parseEd25519 reads a public key object: CKA_EC_POINT is an OCTET STRING in DER
// around the key. Some tokens leave the wrapping out, which the length shows.
func parseEd25519(params, point []byte) (publicKey, error) {
	known := false
	for _, form := range paramsEd25519 {
		known = known || bytes.Equal(params, form)
	}
	if !known {
		return nil, fmt.Errorf("the key's CKA_EC_PARAMS (%x) do not name Ed25519: %s", params, needEd25519)
	}
	if len(point) == 2+ed25519.PublicKeySize && point[0] == 4 && point[1] == ed25519.PublicKeySize {
		point = point[2:]
	}
	if len(point) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("the key's CKA_EC_POINT has %d bytes and an Ed25519 key has %d", len(point), ed25519.PublicKeySize)
	}
	return ed25519.PublicKey(point), nil
}
