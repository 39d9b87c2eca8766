package sealing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Secrets holds the server secrets of a process, newest first. The database names the secret in
// force, which encrypts new data, and the former secrets that stored data still needs. A process that
// lacks one of these does not start, and a running one is no longer ready (see Check).
type Secrets struct {
	all    atomic.Pointer[[]*Secret]
	writer atomic.Pointer[Secret]
}

// Load reads the secrets from a file, newest first. Each line holds a secret of at least 64
// hex digits. Load returns an error if the file has no secret, a malformed line, or the same
// secret twice.
func Load(path string) (*Secrets, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("server secret: %w", err)
	}
	return Parse(path, text)
}

// Parse is Load for a text that was read from the path.
func Parse(path string, text []byte) (*Secrets, error) {
	var all []*Secret
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		raw, err := hex.DecodeString(line)
		if err != nil || len(raw) < 32 {
			return nil, fmt.Errorf("server secret: a line of %s is malformed: each line must hold at least 64 hex digits, as `openssl rand -hex 32` prints them", path)
		}
		secret, err := New(raw)
		if err != nil {
			return nil, err
		}
		all = append(all, secret)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("server secret: the file %s is empty: add the output of `openssl rand -hex 32`", path)
	}
	return NewSecrets(all...)
}

// NewSecrets returns a set of secrets, which are given newest first. The first secret encrypts new
// data until Use selects another. NewSecrets returns an error if a secret occurs twice.
func NewSecrets(all ...*Secret) (*Secrets, error) {
	for i, one := range all {
		if slices.ContainsFunc(all[:i], func(other *Secret) bool { return bytes.Equal(one.fingerprint, other.fingerprint) }) {
			return nil, fmt.Errorf("server secret: the file has secret %s twice: remove one of the two lines", one.ID())
		}
	}
	s := &Secrets{}
	s.all.Store(&all)
	s.writer.Store(all[0])
	return s, nil
}

// Format hides the secrets from every verb of package fmt.
func (*Secrets) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "sealing.Secrets") }

// All returns the secrets, newest first. The caller MUST NOT change the slice.
func (s *Secrets) All() []*Secret { return *s.all.Load() }

// Writer returns the secret that encrypts new data.
func (s *Secrets) Writer() *Secret { return s.writer.Load() }

// Find returns the secret with the fingerprint, or nil.
func (s *Secrets) Find(fingerprint []byte) *Secret {
	for _, one := range s.All() {
		if bytes.Equal(one.fingerprint, fingerprint) {
			return one
		}
	}
	return nil
}

// Use makes Writer return the given secret, which is one of s.
func (s *Secrets) Use(secret *Secret) { s.writer.Store(secret) }

// Check calls Use with the secret in force. It returns an error if s lacks this secret, or a former
// one that stored data still needs. If the database names no secret yet, Check first records the
// newest of s as the secret in force.
func (s *Secrets) Check(ctx context.Context, database *store.Store) error {
	state, err := database.ServerSecret(ctx)
	if errors.Is(err, store.ErrNotFound) {
		if err := database.ClaimSecret(ctx, s.All()[0].fingerprint); err != nil {
			return err
		}
		state, err = database.ServerSecret(ctx)
	}
	if err != nil {
		return err
	}
	if err := s.Suffice(state); err != nil {
		return err
	}
	if inForce := s.Find(state.Fingerprint); inForce != nil { // nil if Replace ran meanwhile
		s.Use(inForce)
	}
	return nil
}

// Replace takes over the secrets of a changed file. If they do not suffice (see Check), the former ones stay.
func (s *Secrets) Replace(ctx context.Context, database *store.Store, changed *Secrets) error {
	if err := changed.Check(ctx, database); err != nil {
		return err
	}
	s.all.Store(changed.all.Load())
	s.Use(changed.Writer())
	return nil
}

// Refresh repeats Check, for example after store.ErrSecretReplaced. If Check fails, Refresh
// returns an UNAVAILABLE error, whose text may be sent to the caller of the API.
func (s *Secrets) Refresh(ctx context.Context, database *store.Store) error {
	err := s.Check(ctx, database)
	if err == nil || problem.Is(err, problem.Unavailable) {
		return err
	}
	return problem.New(problem.Unavailable, "this replica lacks a server secret and changed nothing; send the same request again in a few seconds").WithRetryAfter(2).WithCause(err)
}

// Suffice returns an error if s lacks the secret in force, or a former one that stored data still needs.
func (s *Secrets) Suffice(state store.SecretState) error {
	var lacks []string
	for _, needed := range append([][]byte{state.Fingerprint}, state.Former...) {
		if s.Find(needed) == nil {
			lacks = append(lacks, ShortID(needed))
		}
	}
	if lacks == nil {
		return nil
	}
	return fmt.Errorf("FAIRPACT_SERVER_SECRET_FILE lacks a server secret: the database needs %v, and the file has only %v; add the missing secret to the file, on a line of its own. "+
		"If that secret is lost, stop all processes and run `fairpactctl secret adopt`", lacks, s.IDs())
}

// IDs returns the short fingerprints of the secrets, newest first.
func (s *Secrets) IDs() (ids []string) {
	for _, one := range s.All() {
		ids = append(ids, one.ID())
	}
	return ids
}

// OpenInput decrypts an input that was sealed for this deal and party. It tries all secrets.
func (s *Secrets) OpenInput(dealID string, party int, sealed []byte) (in Input, err error) {
	for _, one := range s.All() {
		if in, err = one.OpenInput(dealID, party, sealed); err == nil {
			return in, nil
		}
	}
	return Input{}, err
}

// DecryptSeal decrypts the text of a seal that was encrypted for this deal and party. It tries all secrets.
func (s *Secrets) DecryptSeal(dealID string, party int, sealed []byte) ([]byte, error) {
	for _, one := range s.All() {
		if text, err := one.inputs.Open(nil, nil, sealed, additionalData("seal", dealID, party)); err == nil {
			return text, nil
		}
	}
	return nil, fmt.Errorf("a stored seal does not open: the seal of party %d of deal %s was encrypted under another server secret, or the row was changed", party, dealID)
}

// Digest returns 8 hex digits that identify the set, whatever the order of the secrets.
func (s *Secrets) Digest() string {
	var prints []string
	for _, one := range s.All() {
		prints = append(prints, string(one.fingerprint))
	}
	slices.Sort(prints)
	sum := sha256.Sum256([]byte(strings.Join(prints, "")))
	return hex.EncodeToString(sum[:4])
}

// ShortID returns the first 4 bytes of a fingerprint in hex, for messages to people.
func ShortID(fingerprint []byte) string {
	return hex.EncodeToString(fingerprint[:min(4, len(fingerprint))])
}
