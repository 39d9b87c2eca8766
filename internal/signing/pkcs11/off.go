//go:build !(pkcs11 && cgo)

package pkcs11

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"errors"
)

// Provider is none: a PKCS#11 library is C code, and this build has no cgo.
type Provider struct{}

var errOff = errors.New("this binary was built without PKCS#11: build with -tags pkcs11 and CGO_ENABLED=1")

// Open returns an error, of the URI or of the build.
func Open(_ context.Context, rest string) (*Provider, error) {
	if _, err := parse(rest); err != nil {
		return nil, err
	}
	return nil, errOff
}

// Ed25519 is none either.
type Ed25519 struct{ *Provider }

// OpenEd25519 returns the error of Open.
func OpenEd25519(ctx context.Context, rest string) (Ed25519, error) {
	_, err := Open(ctx, rest)
	return Ed25519{}, err
}

// Key returns the error of Open.
func (Ed25519) Key(context.Context) (ed25519.PublicKey, string, error) { return nil, "", errOff }

// Sign returns the error of Open.
func (Ed25519) Sign(context.Context, []byte) ([]byte, error) { return nil, errOff }

// Key returns the error of Open.
func (*Provider) Key(context.Context) (*ecdsa.PublicKey, string, error) { return nil, "", errOff }

// Sign returns the error of Open.
func (*Provider) Sign(context.Context, [32]byte) ([]byte, error) { return nil, errOff }

// Close does nothing.
func (*Provider) Close() error { return nil }
