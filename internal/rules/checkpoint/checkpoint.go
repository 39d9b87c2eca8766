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

// Parse reads the body of a note. It refuses extension lines, because this log writes
// none and some kinds of cosignatures do not cover them.
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

// ParseNote reads the checkpoint in a signed note without verifying its signatures.
func ParseNote(signedNote string) (Checkpoint, error) {
	at := strings.LastIndex(signedNote, "\n\n")
	if at < 0 {
		return Checkpoint{}, errors.New("not a signed note: no blank line before the signatures")
	}
	return Parse(signedNote[:at+1])
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
	case !utf8.ValidString(origin) || strings.Contains(origin, "+") || strings.ContainsFunc(origin, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return fmt.Errorf("the origin %q has a space, a plus, a control character or invalid UTF-8: use the log's public URL without scheme, such as example.com/log", origin)
	}
	return nil
}

// encode64 returns b in the base64 that all C2SP formats use (RFC 4648, section 4).
func encode64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
