//go:build !(pkcs11 && cgo)

package pkcs11

import (
	"context"
	"errors"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

// Open always returns an error, because this build has no PKCS#11. If the URI is invalid,
// the error says what is wrong with the URI.
func Open(_ context.Context, rest string, _ provider.Kind) (provider.Provider, error) {
	if _, err := parse(rest); err != nil {
		return nil, err
	}
	return nil, errors.New("this binary was built without PKCS#11: build with -tags pkcs11 and CGO_ENABLED=1")
}
