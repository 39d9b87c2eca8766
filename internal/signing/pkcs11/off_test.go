//go:build !(pkcs11 && cgo)

package pkcs11

import (
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

func TestBuiltWithoutPKCS11(t *testing.T) {
	_, err := Open(t.Context(), "token=t;object=k?module-path=/lib/x.so&pin-source=file:/run/pin", provider.P256)
	if err == nil || !strings.Contains(err.Error(), "-tags pkcs11") {
		t.Errorf("Open: %v, want an error that names the build", err)
	}
}
