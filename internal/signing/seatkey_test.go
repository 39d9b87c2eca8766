package signing

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A key of each scheme is kept in a file and signs in the form that commitments take: an
// es256 signature is low-S, whichever s the library returns.
func TestSeatKeysSign(t *testing.T) {
	for _, scheme := range []string{schemeES256, schemeEd25519} {
		path := filepath.Join(t.TempDir(), "seat.pem")
		label, err := MakeSeatKey(path, scheme)
		if err != nil || !strings.HasPrefix(label, scheme+":") {
			t.Fatalf("%s: %q %v", scheme, label, err)
		}
		key, err := ReadSeatKey(path)
		if err != nil || key.Label != label {
			t.Fatalf("%s: read as %q, %v", label, key.Label, err)
		}
		for i := range 32 {
			message := fmt.Appendf(nil, "message %d", i)
			signature, err := key.Sign(message)
			if err == nil {
				err = VerifyLabel(label, message, signature)
			}
			if err != nil {
				t.Fatalf("%s: %v", scheme, err)
			}
		}
	}
	if _, err := MakeSeatKey(filepath.Join(t.TempDir(), "seat.pem"), "rsa"); err == nil {
		t.Error("a key of an unknown scheme is made")
	}
}
