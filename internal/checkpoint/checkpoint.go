// Package checkpoint reads and writes what a transparency log publishes in the
// formats of C2SP, so that clients, monitors and witnesses of other authors work
// on it unchanged:
//
//	c2sp.org/signed-note        signature lines and verifier keys
//	c2sp.org/tlog-checkpoint    the tree head as a note
//	c2sp.org/tlog-cosignature   what a witness adds to it
//	c2sp.org/tlog-witness       add-checkpoint, how it is asked to
//	c2sp.org/tlog-policy        which logs and witnesses a verifier trusts
//	c2sp.org/tlog-tiles         paths of tiles and entry bundles
//	c2sp.org/tlog-proof         one file that proves a leaf offline
//
// It is pure: it signs nothing, and asks nobody.
package checkpoint

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
)

// Checkpoint is a tree head of a log.
type Checkpoint struct {
	Origin string // names the log; see CheckOrigin
	Size   int64  // leaves, at least 0
	Root   [32]byte
}

// Text is the body of the note: what every signature is over. It has no
// extension lines.
func (c Checkpoint) Text() string {
	return string(log.Checkpoint{Origin: c.Origin, Size: uint64(c.Size), Hash: c.Root[:]}.Marshal())
}

// Digest is SHA-256 of the text, which an ECDSA note signature signs. A published
// checkpoint is therefore a public digest with a signature of a deployment key,
// and the log must never admit it as an entry.
func (c Checkpoint) Digest() [32]byte { return sha256.Sum256([]byte(c.Text())) }

// MaxNote bounds a signed checkpoint in bytes: room for 32 ML-DSA-44 cosignatures.
const MaxNote = 256 << 10

// Parse reads the body of a note. Extension lines are refused: no log that this
// package is for writes them, and not all cosignatures cover them.
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
	if c.Text() != text { // leading zeros, line feeds inside the base64
		return Checkpoint{}, errors.New("invalid checkpoint: its lines are not in their only form")
	}
	return c, nil
}

// Open verifies a signed checkpoint under the keys of its log and reads it. The
// note must carry a valid signature by at least one of the keys whose name is the
// origin, and no invalid one by any of them or of the cosigners. signed are the
// keys whose signatures it carries; lines under other keys are ignored.
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

// TextOf returns the body of a signed note, whoever signed it.
func TextOf(signedNote string) (string, error) {
	at := strings.LastIndex(signedNote, "\n\n")
	if at < 0 {
		return "", errors.New("not a signed note: no blank line before the signatures")
	}
	return signedNote[:at+1], nil
}

// CheckOrigin returns an error where origin cannot name a log and its keys. It
// SHOULD be the URL under which the log is read, without scheme and trailing
// slash: example.com, or example.com/log.
func CheckOrigin(origin string) error {
	switch {
	case origin == "":
		return errors.New("the origin is empty: use the log's public URL without scheme, such as example.com/log")
	case len(origin) > 255: // an ML-DSA-44 cosignature has one byte for the length
		return errors.New("the origin is over 255 bytes")
	case strings.Contains(origin, "://") || strings.HasPrefix(origin, "/") || strings.HasSuffix(origin, "/"):
		return fmt.Errorf("the origin %q has a scheme or a slash at an end: leave them out, as in example.com/log", origin)
	case !utf8.ValidString(origin) || strings.Contains(origin, "+") || strings.ContainsFunc(origin, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return fmt.Errorf("the origin %q has a space, a plus or a control character: use the log's public URL without scheme, such as example.com/log", origin)
	}
	return nil
}

// encode64 is the base64 of all C2SP formats: RFC 4648, section 4.
func encode64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// decodeHash reads one hash in its only base64 form.
func decodeHash(text string) (hash [32]byte, err error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) != len(hash) || encode64(b) != text {
		return hash, fmt.Errorf("%.60q is not 32 bytes in base64", text)
	}
	return [32]byte(b), nil
}
