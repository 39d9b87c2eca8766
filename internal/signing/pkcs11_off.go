//go:build !(pkcs11 && cgo)

package signing

import (
	"context"
	"errors"
)

// openPKCS11 tells that this binary cannot: a PKCS#11 library is C code.
func openPKCS11(_ context.Context, attributes string) (provider, error) {
	if _, err := parsePKCS11(attributes); err != nil {
		return nil, err
	}
	return nil, errors.New("this binary was built without PKCS#11: build with -tags pkcs11 and CGO_ENABLED=1")
}
