package gcpkms

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"cloud.google.com/go/kms/apiv1/kmspb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Ed25519 is a log key, a key version of EC_SIGN_ED25519.
type Ed25519 struct{ *Provider }

// OpenEd25519 is Open for a log key.
func OpenEd25519(ctx context.Context, rest string) (Ed25519, error) {
	p, err := Open(ctx, rest)
	return Ed25519{p}, err
}

// Key reads the public key.
func (e Ed25519) Key(ctx context.Context) (ed25519.PublicKey, string, error) {
	parsed, custody, err := e.read(ctx, "a log key", kmspb.CryptoKeyVersion_EC_SIGN_ED25519, "ec-sign-ed25519")
	if err != nil {
		return nil, "", err
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, "", fmt.Errorf("the public key of %s from Google Cloud KMS is a %T and not an Ed25519 one", e.name, parsed)
	}
	return key, custody, nil
}

// Sign asks for a signature of a message (RFC 8032, PureEdDSA).
func (e Ed25519) Sign(ctx context.Context, message []byte) ([]byte, error) {
	return e.sign(ctx, &kmspb.AsymmetricSignRequest{Name: e.name, Data: message, DataCrc32C: wrapperspb.Int64(crc32c(message))})
}
