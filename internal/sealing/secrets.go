package sealing

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// Secrets are the server secrets of a process, newest first. They open inputs that
// were sealed under any of them. The database names the one to write with (Use), so
// that no process writes under a secret that another process lacks.
type Secrets struct {
	all    []*Secret
	writer atomic.Pointer[Secret]
}

// Load reads the secrets from a file. Each line holds one, in 64 hex digits or more.
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

// NewSecrets returns a set that writes with its first secret until Use is called.
func NewSecrets(all ...*Secret) (*Secrets, error) {
	for i, one := range all {
		if slices.ContainsFunc(all[:i], func(other *Secret) bool { return bytes.Equal(one.fingerprint, other.fingerprint) }) {
			return nil, errors.New("server secret: the file has a secret twice: remove one of the two lines")
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

// Writer returns the secret to write with.
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

// Use makes a secret of the set the writer. marked says whether sealed inputs carry
// its id. They do only after the first rotation of a database, because the previous
// release does not know the mark.
func (s *Secrets) Use(secret *Secret, marked bool) {
	if now := s.writer.Load(); bytes.Equal(now.fingerprint, secret.fingerprint) && now.marks == marked {
		return
	}
	writer := *secret
	writer.marks = marked
	s.writer.Store(&writer)
}

// OpenInput decrypts an input of the same deal and party that any of the secrets
// sealed. Its error names the missing secret if the input has a mark.
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

// Digest returns 8 hex digits that identify the set, whatever its order.
func (s *Secrets) Digest() string {
	var prints []string
	for _, one := range s.all {
		prints = append(prints, string(one.fingerprint))
	}
	slices.Sort(prints)
	sum := sha256.Sum256([]byte(strings.Join(prints, "")))
	return hex.EncodeToString(sum[:4])
}

// A mark is this prefix and the first bytes of a fingerprint.
const (
	markPrefix = "\x00fp\x01"
	idSize     = 4
)

// ShortID returns the short form of a fingerprint, for people.
func ShortID(fingerprint []byte) string {
	return hex.EncodeToString(fingerprint[:min(idSize, len(fingerprint))])
}

// markedBy returns the secret's id in the mark of a sealed input, if it has one.
func markedBy(sealed []byte) (id string, ok bool) {
	rest, ok := bytes.CutPrefix(sealed, []byte(markPrefix))
	return ShortID(rest), ok && len(rest) > idSize
}
