package signing

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing/file"
	"github.com/fairpact/fairpact/internal/signing/provider"
)

// SeatKey is the private key of a party. It signs on the party's machine, never in a
// service.
type SeatKey struct {
	Label   string // the public key, as es256:HEX or ed25519:HEX
	private crypto.Signer
}

// MakeSeatKey writes a new key of a scheme, es256 or ed25519, to a PEM file that MUST
// NOT exist yet, and returns the label of the public key.
func MakeSeatKey(path, scheme string) (label string, err error) {
	kind, known := map[string]provider.Kind{"es256": provider.P256, "ed25519": provider.Ed25519}[scheme]
	if !known {
		return "", fmt.Errorf("key type %q is not known: use es256 or ed25519", scheme)
	}
	public, err := file.Make(path, kind)
	if err != nil {
		return "", err
	}
	return keys.Label(public)
}

// ReadSeatKey reads an es256 or ed25519 key from a PEM file.
func ReadSeatKey(path string) (k SeatKey, err error) {
	if k.private, err = file.Read(path); err == nil {
		k.Label, err = keys.Label(k.private.Public())
	}
	return k, err
}

// Sign returns the signature of a message as `<scheme>:<hex>`.
func (k SeatKey) Sign(message []byte) (string, error) {
	if private, ok := k.private.(ed25519.PrivateKey); ok {
		return "ed25519:" + hex.EncodeToString(ed25519.Sign(private, message)), nil
	}
	digest := sha256.Sum256(message)
	der, err := k.private.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		return "", err
	}
	return keys.FromDER(der)
}
