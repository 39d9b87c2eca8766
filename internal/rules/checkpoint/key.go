package checkpoint

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	formats "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
)

// Signature types of c2sp.org/signed-note.
const (
	TypeEd25519     = 0x01 // Ed25519 signature of a log; each checkpoint of a public log MUST have one
	TypeECDSA       = 0x02 // P-256 signature of a log, over the SHA-256 hash of the text
	TypeCosignature = 0x04 // Ed25519 cosignature of a witness, with a timestamp
	TypeMLDSA       = 0x06 // ML-DSA-44 cosignature of a witness, with a timestamp
)

// Key is a verifier key (vkey). It implements note.Verifier.
type Key struct {
	note.Verifier
	vkey   string
	kind   byte
	public string // bytes of the public key, to detect the same key under another name
}

// ParseKey reads a vkey, the text form NAME+KEYID+BASE64 of a verifier key. It refuses a
// vkey whose key ID does not match the key.
func ParseKey(vkey string) (Key, error) {
	name, rest, _ := strings.Cut(vkey, "+")
	id, material, _ := strings.Cut(rest, "+")
	raw, err := base64.StdEncoding.DecodeString(material)
	if err != nil || len(raw) < 2 || len(id) != 8 || name == "" || encode64(raw) != material {
		return Key{}, fmt.Errorf("%.80q is not a verifier key: write NAME+KEYID+BASE64, where KEYID is 8 hex digits", vkey)
	}
	key := Key{vkey: vkey, kind: raw[0], public: string(raw[1:])}
	switch raw[0] {
	case TypeEd25519:
		key.Verifier, err = note.NewVerifier(vkey)
	case TypeECDSA:
		key.Verifier, err = formats.NewECDSAVerifier(vkey)
	case TypeCosignature, TypeMLDSA:
		key.Verifier, err = formats.NewVerifierForCosignatureV1(vkey)
	default:
		err = fmt.Errorf("signature type 0x%02x is not supported", raw[0])
	}
	if err == nil && !isKeyName(name) {
		err = errors.New("the key name has a space or a control character, or is not UTF-8")
	}
	if err == nil && fmt.Sprintf("%08x", key.KeyHash()) != id {
		err = fmt.Errorf("the key ID %s does not match the key, whose ID is %08x", id, key.KeyHash())
	}
	if err != nil {
		return Key{}, fmt.Errorf("verifier key %.80q: %w", vkey, err)
	}
	return key, nil
}

// Ed25519Key returns the verifier key for a log's Ed25519 signatures (type 0x01).
func Ed25519Key(name string, public ed25519.PublicKey) (Key, error) {
	vkey, err := note.NewEd25519VerifierKey(name, public)
	if err != nil {
		return Key{}, err
	}
	return ParseKey(vkey)
}

// ECDSAKey returns the verifier key for a log's P-256 signatures (type 0x02). The key ID
// is the first 4 bytes of the SHA-256 hash of the public key in DER.
func ECDSAKey(name string, public *ecdsa.PublicKey) (Key, error) {
	if public.Curve != elliptic.P256() {
		return Key{}, fmt.Errorf("the key is on curve %s: use a P-256 key", public.Curve.Params().Name)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return Key{}, err
	}
	id := sha256.Sum256(der)
	return ParseKey(name + "+" + hex.EncodeToString(id[:4]) + "+" + encode64(append([]byte{TypeECDSA}, der...)))
}

// isKeyName follows c2sp.org/signed-note. CheckOrigin is stricter.
func isKeyName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.Contains(name, "+") &&
		!strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || unicode.IsSpace(r) })
}

// Verify implements note.Verifier. It refuses a cosignature with timestamp 0, which does not claim
// that the tree is the largest one that the witness has seen (c2sp.org/tlog-cosignature).
func (k Key) Verify(text, signature []byte) bool {
	if k.kind == TypeCosignature || k.kind == TypeMLDSA {
		if len(signature) < 8 || binary.BigEndian.Uint64(signature) == 0 {
			return false
		}
	}
	return k.Verifier.Verify(text, signature)
}

// String returns the vkey.
func (k Key) String() string { return k.vkey }

// Type returns the signature type.
func (k Key) Type() byte { return k.kind }

// ID returns a short identifier of the key: its name, a plus sign and its key ID in hex.
func (k Key) ID() string { return fmt.Sprintf("%s+%08x", k.Name(), k.KeyHash()) }

// Line returns the line of a signed note for a signature by this key.
func (k Key) Line(signature []byte) string {
	return "— " + k.Name() + " " + encode64(append(binary.BigEndian.AppendUint32(nil, k.KeyHash()), signature...)) + "\n"
}

// Signed reports whether the line names this key. It returns an error if the line is
// malformed, or if the line names this key but the signature over the text is invalid.
func (k Key) Signed(text, line string) (mine bool, err error) {
	name, signature, err := readLine(line)
	if err != nil || name != k.Name() || binary.BigEndian.Uint32(signature) != k.KeyHash() {
		return false, err
	}
	if !k.Verify([]byte(text), signature[4:]) {
		return true, fmt.Errorf("invalid signature by %s", k.ID())
	}
	return true, nil
}

// IsSignatureLine reports whether the line has the form of a signature line in a signed
// note. It does not verify the signature.
func IsSignatureLine(line string) bool {
	_, _, err := readLine(line)
	return err == nil && strings.HasSuffix(line, "\n")
}

// readLine returns the key name of a signature line, and the key ID (4 bytes) with the signature.
// It refuses base64 that is not canonical, because some verifiers then refuse the whole note.
func readLine(line string) (name string, signature []byte, err error) {
	body, dash := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "— ")
	name, text, space := strings.Cut(body, " ")
	signature, err = base64.StdEncoding.DecodeString(text)
	if !dash || !space || err != nil || encode64(signature) != text || len(signature) < 5 || !isKeyName(name) {
		return "", nil, fmt.Errorf("%.60q is not a signature line", line)
	}
	return name, signature, nil
}
