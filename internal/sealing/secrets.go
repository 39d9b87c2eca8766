package sealing

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// Secrets holds the server secrets of a process, newest first. It opens inputs that were
// sealed under any of them. The database decides which secret seals new inputs (Use), so
// that no process seals under a secret that another process lacks.
type Secrets struct {
	all    []*Secret
	writer atomic.Pointer[Secret]
}

// Load reads the secrets from a file. Each line holds a secret in 64 hex digits or more.
// A file without a secret, with a malformed line or with a secret twice is an error.
func Load(path string) (*Secrets, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("server secret: %w", err)
	}
	var all []*Secret
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		raw, err := hex.DecodeString(line)
		if err != nil || len(raw) < 32 {
			return nil, fmt.Errorf("server secret: each line of %s must hold at least 64 hex digits; make one with `openssl rand -hex 32`", path)
		}
		secret, err := New(raw)
		if err != nil {
			return nil, err
		}
		all = append(all, secret)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("server secret: %s is empty; make one with `openssl rand -hex 32`", path)
	}
	return NewSecrets(all...)
}

// NewSecrets returns a set whose Writer is its first secret until Use is called. A secret
// that occurs twice is an error.
func NewSecrets(all ...*Secret) (*Secrets, error) {
	for i, one := range all {
		if slices.ContainsFunc(all[:i], func(other *Secret) bool { return bytes.Equal(one.fingerprint, other.fingerprint) }) {
			return nil, fmt.Errorf("server secret: the file has secret %s twice: remove one of the two lines", one.ID())
		}
	}
	s := &Secrets{all: all}
	s.writer.Store(all[0])
	return s, nil
}

// Format hides the secrets from every verb of package fmt.
func (*Secrets) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "sealing.Secrets") }

// All returns the secrets, newest first. The caller MUST NOT change the slice.
func (s *Secrets) All() []*Secret { return s.all }

// Writer returns the secret that encrypts new data.
func (s *Secrets) Writer() *Secret { return s.writer.Load() }

// Find returns the secret with the fingerprint, or nil.
func (s *Secrets) Find(fingerprint []byte) *Secret {
	for _, one := range s.all {
		if bytes.Equal(one.fingerprint, fingerprint) {
			return one
		}
	}
	return nil
}

// Use makes secret the Writer. If marked is true, inputs sealed under it begin with its
// mark. Callers pass false until the first rotation of a database, because the previous
// release does not know marks.
func (s *Secrets) Use(secret *Secret, marked bool) {
	if now := s.writer.Load(); bytes.Equal(now.fingerprint, secret.fingerprint) && now.marks == marked {
		return
	}
	writer := *secret
	writer.marks = marked
	s.writer.Store(&writer)
}

// OpenInput decrypts an input that was sealed for this deal and party. It tries all secrets.
// If no secret opens a marked input, the error names the secret in the mark.
func (s *Secrets) OpenInput(dealID string, party int, sealed []byte) (in Input, err error) {
	for _, one := range s.all {
		if in, err = one.OpenInput(dealID, party, sealed); err == nil {
			return in, nil
		}
	}
	if id, ok := markedBy(sealed); ok {
		err = fmt.Errorf("%w (it was sealed under the server secret %s)", err, id)
	}
	return Input{}, err
}

// Digest returns 8 hex digits that identify the set. The order does not matter.
func (s *Secrets) Digest() string {
	var prints []string
	for _, one := range s.all {
		prints = append(prints, string(one.fingerprint))
	}
	slices.Sort(prints)
	sum := sha256.Sum256([]byte(strings.Join(prints, "")))
	return hex.EncodeToString(sum[:4])
}

// A mark is markPrefix and the first idSize bytes of a fingerprint. At the start of a
// sealed input it names the secret.
const (
	markPrefix = "\x00fp\x01"
	idSize     = 4
)

// ShortID returns the first 4 bytes of a fingerprint in hex, for messages to people.
func ShortID(fingerprint []byte) string {
	return hex.EncodeToString(fingerprint[:min(idSize, len(fingerprint))])
}

// markedBy returns the ID of the secret that the mark of a sealed input names. ok is
// false if the input has no mark.
func markedBy(sealed []byte) (id string, ok bool) {
	rest, ok := bytes.CutPrefix(sealed, []byte(markPrefix))
	return ShortID(rest), ok && len(rest) > idSize
}
