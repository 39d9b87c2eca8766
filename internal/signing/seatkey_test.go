package signing

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/keys"
)

// crypto/ecdsa returns a low or a high s at random, so the test signs 32 messages. keys.Verify
// accepts only a low s.
func TestSeatKeysSign(t *testing.T) {
	for _, scheme := range []string{"es256", "ed25519"} {
		path := filepath.Join(t.TempDir(), "seat.pem")
		label, err := MakeKeyFile(path, scheme)
		if err != nil || !strings.HasPrefix(label, scheme+":") {
			t.Fatalf("make a key of %s: label %q, %v; want a label of that scheme", scheme, label, err)
		}
		key, err := ReadSeatKey(path)
		if err != nil || key.Label != label {
			t.Fatalf("read the key %s: label %q, %v; want the same", label, key.Label, err)
		}
		for i := range 32 {
			message := fmt.Appendf(nil, "message %d", i)
			signature, err := key.Sign(message)
			if err == nil {
				err = keys.Verify(label, message, signature)
			}
			if err != nil {
				t.Fatalf("sign with a key of %s: %v", scheme, err)
			}
		}
	}
	if _, err := MakeKeyFile(filepath.Join(t.TempDir(), "seat.pem"), "rsa"); err == nil {
		t.Error("MakeKeyFile with an unknown scheme: no error, want one")
	}
}
