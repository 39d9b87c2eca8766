// Package checkpoint reads and writes the C2SP formats of transparency logs, so that tools and
// witnesses by other authors work with this log unchanged:
//
//	c2sp.org/signed-note        signature lines and verifier keys
//	c2sp.org/tlog-checkpoint    the tree head as a note
//	c2sp.org/tlog-cosignature   a witness's signature line
//	c2sp.org/tlog-witness       add-checkpoint, the request to a witness
//	c2sp.org/tlog-policy        which logs and witnesses a verifier trusts
//	c2sp.org/tlog-tiles         paths of tiles and entry bundles
//	c2sp.org/tlog-proof         one file that proves a leaf offline
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
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/transparency-dev/formats/log"
	formats "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
)

// Checkpoint is a tree head of a log.
type Checkpoint struct {
	Origin string // name of the log; see CheckOrigin
	Size   int64  // number of leaves
	Root   [32]byte
}

// Text returns the body of the note, which is the signed part.
func (c Checkpoint) Text() string {
	return string(log.Checkpoint{Origin: c.Origin, Size: uint64(c.Size), Hash: c.Root[:]}.Marshal())
}

// Digest returns the SHA-256 hash of Text, which the deployment key signs. The log MUST refuse it
// as an entry, because the signature would also be a valid one of that entry.
func (c Checkpoint) Digest() [32]byte { return sha256.Sum256([]byte(c.Text())) }

// MaxNote is the maximum size of a signed checkpoint, enough for 32 ML-DSA-44 cosignatures.
const MaxNote = 256 << 10

// Parse reads the body of a note, without extension lines: some kinds of cosignatures do not cover them.
func Parse(text string) (Checkpoint, error) {
	var read log.Checkpoint
	rest, err := read.Unmarshal([]byte(text))
	if err != nil {
		return Checkpoint{}, err
	}
	if len(rest) > 0 {
		return Checkpoint{}, errors.New("invalid checkpoint: it has extension lines")
	}
	if len(read.Hash) != sha256.Size || read.Size > math.MaxInt64 {
		return Checkpoint{}, errors.New("invalid checkpoint: its root is not 32 bytes, or its size is over 2^63-1")
	}
	c := Checkpoint{Origin: read.Origin, Size: int64(read.Size), Root: [32]byte(read.Hash)}
	if c.Text() != text { // for example, a leading zero in the size, or a carriage return in the base64
		return Checkpoint{}, errors.New("invalid checkpoint: its lines are not in the canonical form")
	}
	return c, nil
}

// Open verifies and reads a signed checkpoint. A key in `logs` whose name is the origin must have
// signed it. An invalid signature by a key in `logs` or `cosigners` is an error; lines of other
// keys are ignored. `signed` lists the keys of both that signed.
func Open(signedNote []byte, logs, cosigners []Key) (c Checkpoint, signed []Key, err error) {
	if len(signedNote) > MaxNote {
		return c, nil, fmt.Errorf("the checkpoint is over %d bytes", MaxNote)
	}
	all := append(append([]Key{}, logs...), cosigners...)
	known := make([]note.Verifier, len(all))
	for i := range all {
		known[i] = all[i]
	}
	opened, err := note.Open(signedNote, note.VerifierList(known...))
	if unverified := (*note.UnverifiedNoteError)(nil); errors.As(err, &unverified) {
		return c, nil, errUnsigned
	}
	if err != nil {
		return c, nil, err
	}
	if c, err = Parse(opened.Text); err != nil {
		return c, nil, err
	}
	byLog := false
	for i, key := range all {
		for _, sig := range opened.Sigs {
			if sig.Name == key.Name() && sig.Hash == key.KeyHash() {
				signed = append(signed, key)
				byLog = byLog || i < len(logs) && key.Name() == c.Origin
			}
		}
	}
	if !byLog {
		return c, nil, errUnsigned
	}
	return c, signed, nil
}

var errUnsigned = errors.New("the checkpoint carries no signature by a known key of its log")

const maxLines = 100 // signature lines of a note, as in package note

// ParseNote reads the checkpoint in a signed note without verifying its signatures. It accepts exactly what
// /protocol, section 8.1, allows.
func ParseNote(signedNote string) (Checkpoint, error) {
	if len(signedNote) > MaxNote {
		return Checkpoint{}, fmt.Errorf("the checkpoint is over %d bytes", MaxNote)
	}
	at := strings.LastIndex(signedNote, "\n\n")
	if at < 0 {
		return Checkpoint{}, errors.New("not a signed note: no blank line before the signatures")
	}
	lines := slices.Collect(strings.Lines(signedNote[at+2:]))
	if n := len(lines); n < 1 || n > maxLines {
		return Checkpoint{}, fmt.Errorf("the checkpoint has %d signature lines, not 1 to %d", n, maxLines)
	}
	for _, line := range lines {
		if !IsSignatureLine(line) {
			return Checkpoint{}, fmt.Errorf("%.60q is not a signature line", line)
		}
	}
	c, err := Parse(signedNote[:at+1])
	if err == nil && !isKeyName(c.Origin) {
		err = fmt.Errorf("the origin %.60q of the checkpoint cannot be the name of a key", c.Origin)
	}
	return c, err
}

// CheckOrigin returns an error if the origin cannot be the name of a log and its keys. The
// origin SHOULD be the log's public URL without scheme and trailing slash: example.com, or
// example.com/log.
func CheckOrigin(origin string) error {
	switch {
	case origin == "":
		return errors.New("the origin is empty: use the log's public URL without scheme, such as example.com/log")
	case len(origin) > 255: // the signed message of an ML-DSA-44 cosignature has one byte for the origin's length
		return errors.New("the origin is over 255 bytes: use a shorter one")
	case strings.Contains(origin, "://") || strings.HasPrefix(origin, "/") || strings.HasSuffix(origin, "/"):
		return fmt.Errorf("the origin %q has a scheme, or a slash at its start or end: write it without these, as in example.com/log", origin)
	case !isKeyName(origin):
		return fmt.Errorf("the origin %q has a space, a plus, a control character or invalid UTF-8: use the log's public URL without scheme, such as example.com/log", origin)
	}
	return nil
}

// encode64 returns b in the base64 that all C2SP formats use (RFC 4648, section 4).
func encode64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

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

// ParseKey reads a vkey, NAME+KEYID+BASE64. It refuses a key ID that does not match the key.
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

// ECDSAKey returns the verifier key for a log's P-256 signatures (type 0x02).
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

// isKeyName follows c2sp.org/signed-note, and refuses all control characters. CheckOrigin is stricter.
func isKeyName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.Contains(name, "+") &&
		!strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
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

// Signed reports whether the line names this key. A line that names this key must verify over the text.
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

// cosignedFrom reports whether the line is a cosignature by this key with the unix time `at` or a later one.
func (k Key) cosignedFrom(line string, at int64) bool {
	name, signature, err := readLine(line)
	return err == nil && name == k.Name() && len(signature) >= 12 && binary.BigEndian.Uint32(signature) == k.KeyHash() &&
		binary.BigEndian.Uint64(signature[4:]) >= uint64(max(at, 0))
}

// IsSignatureLine reports whether the line has the form of a signature line in a signed note.
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
