package awskms

import (
	"context"
	"crypto/ed25519"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/kms/types"
)

// Ed25519 is a log key, of spec ECC_NIST_EDWARDS25519.
type Ed25519 struct{ *Provider }

// OpenEd25519 is Open for a log key.
func OpenEd25519(ctx context.Context, rest string) (Ed25519, error) {
	p, err := Open(ctx, rest)
	return Ed25519{p}, err
}

// Key reads the public key, and refuses a key that cannot sign by ED25519_SHA_512.
func (e Ed25519) Key(ctx context.Context) (ed25519.PublicKey, string, error) {
	parsed, custody, err := e.read(ctx, "a log key", types.KeySpecEccNistEdwards25519, types.SigningAlgorithmSpecEd25519Sha512)
	if err != nil {
		return nil, "", err
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, "", errors.New("AWS KMS: the public key is not an Ed25519 one")
	}
	return key, custody, nil
}

// Sign sends the message, of at most 4,096 bytes: Ed25519 does not sign a digest.
func (e Ed25519) Sign(ctx context.Context, message []byte) ([]byte, error) {
	return e.sign(ctx, message, types.MessageTypeRaw, types.SigningAlgorithmSpecEd25519Sha512)
}
