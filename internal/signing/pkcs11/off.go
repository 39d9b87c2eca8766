//go:build !(pkcs11 && cgo)

package pkcs11

import (
	"context"
	"crypto/ecdsa"
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

// Key returns the error of Open.
func (*Provider) Key(context.Context) (*ecdsa.PublicKey, string, error) { return nil, "", errOff }

// Sign returns the error of Open.
func (*Provider) Sign(context.Context, [32]byte) ([]byte, error) { return nil, errOff }

// Close does nothing.
func (*Provider) Close() error { return nil }
