// Package sealing encrypts revealed inputs, and the responses that are stored for
// Idempotency-Keys. The encryption keys are derived from the server secrets. All replicas
// have these secrets, and the database does not. So access to the database alone does not
// suffice to read an input or a response. The package also makes tokens and identifiers.
package sealing

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
)

// Secret is one server secret. It MUST NOT be logged. Package fmt prints every Secret as
// "sealing.Secret".
type Secret struct {
	inputs      cipher.AEAD
	mac         []byte
	root        []byte
	fingerprint []byte
}

// Format hides the secret from every verb of package fmt.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "sealing.Secret") }

// New derives the keys of a Secret from the given bytes. It returns an error if there are
// fewer than 32 bytes.
func New(secret []byte) (*Secret, error) {
	if len(secret) < 32 {
		return nil, fmt.Errorf("server secret has %d bytes, fewer than 32: make a new one with `openssl rand -hex 32`", len(secret))
	}
	root, err := hkdf.Key(sha256.New, secret, nil, "fairpact server secret v1", 32)
	if err != nil {
		return nil, err
	}
	s := &Secret{root: root}
	if s.mac, err = hkdf.Expand(sha256.New, root, "idempotency mac", 32); err != nil {
		return nil, err
	}
	if s.fingerprint, err = hkdf.Expand(sha256.New, root, "fingerprint", 16); err != nil {
		return nil, err
	}
	key, err := hkdf.Expand(sha256.New, root, "inputs", 32)
	if err != nil {
		return nil, err
	}
	s.inputs, err = newAEAD(key)
	return s, err
}

// Fingerprint returns 16 bytes that identify the secret and do not reveal it.
func (s *Secret) Fingerprint() []byte { return s.fingerprint }

// ID returns the short form of the fingerprint, for messages to people.
func (s *Secret) ID() string { return ShortID(s.fingerprint) }

// newAEAD returns AES-256-GCM that puts a random 96-bit nonce before the ciphertext.
func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Input is a party's revealed input with its salt.
type Input struct {
	Canonical []byte // the input in RFC 8785 form
	Salt      string // as it was sent
	SaltBytes []byte // the salt bytes that the commitment's hash covers, see canon.Open
}

// SealInput encrypts a party's input. OpenInput decrypts the result only for the same deal
// and party.
func (s *Secret) SealInput(dealID string, party int, in Input) []byte {
	plain := binary.BigEndian.AppendUint32(nil, uint32(len(in.Salt)))
	plain = append(plain, in.Salt...)
	plain = binary.BigEndian.AppendUint32(plain, uint32(len(in.SaltBytes)))
	plain = append(plain, in.SaltBytes...)
	plain = append(plain, in.Canonical...)
	return s.inputs.Seal(nil, nil, plain, additionalData("input", dealID, party))
}

// OpenInput decrypts an input that was sealed under this secret for this deal and party.
func (s *Secret) OpenInput(dealID string, party int, sealed []byte) (Input, error) {
	plain, err := s.inputs.Open(nil, nil, sealed, additionalData("input", dealID, party))
	if err != nil {
		return Input{}, fmt.Errorf("a stored input does not open: the input of party %d of deal %s was sealed under another server secret, or the row was changed", party, dealID)
	}
	salt, rest, ok := cut(plain)
	saltBytes, canonical, ok2 := cut(rest)
	if !ok || !ok2 {
		return Input{}, fmt.Errorf("a stored input is malformed: party %d of deal %s", party, dealID)
	}
	return Input{Canonical: canonical, Salt: string(salt), SaltBytes: saltBytes}, nil
}

// EncryptSeal encrypts the text of a party's timelock seal.
func (s *Secret) EncryptSeal(dealID string, party int, text []byte) []byte {
	return s.inputs.Seal(nil, nil, text, additionalData("seal", dealID, party))
}

// cut splits off a head that has a 4-byte big-endian length prefix. ok is false if b is too short.
func cut(b []byte) (head, rest []byte, ok bool) {
	if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	return b[4 : 4+n], b[4+n:], true
}

// additionalData returns the additional data of AES-GCM that binds an input or a seal to its deal and
// party.
func additionalData(kind, dealID string, party int) []byte {
	return binary.BigEndian.AppendUint32([]byte(kind+"\x00"+dealID+"\x00"), uint32(party))
}

// MAC returns an HMAC-SHA-256 of the parts. It writes the length of each part before the
// part, so that two different lists of parts are different messages.
func (s *Secret) MAC(parts ...[]byte) []byte {
	return sum(hmac.New(sha256.New, s.mac), parts)
}

func sum(h hash.Hash, parts [][]byte) []byte {
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return h.Sum(nil)
}

// Encrypt encrypts text under a key derived from the server secret and the values in `keyed`. At least
// one of these MUST NOT be in the database, so that secret and database do not suffice to decrypt.
func (s *Secret) Encrypt(text []byte, keyed ...[]byte) ([]byte, error) {
	aead, err := s.keyedAEAD(keyed)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, text, nil), nil
}

// Decrypt decrypts what Encrypt returned for the same secret and the same values in `keyed`.
func (s *Secret) Decrypt(sealed []byte, keyed ...[]byte) ([]byte, error) {
	aead, err := s.keyedAEAD(keyed)
	if err != nil {
		return nil, err
	}
	text, err := aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, errors.New("a stored response does not open: it was sealed under another server secret, or its row was changed")
	}
	return text, nil
}

func (s *Secret) keyedAEAD(keyed [][]byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, s.root, sum(sha256.New(), keyed), "idempotency response", 32)
	if err != nil {
		return nil, err
	}
	return newAEAD(key)
}

// Token returns a new credential: the prefix and 32 random bytes in base64url.
func Token(prefix string) string { return prefix + random(32) }

// ID returns a new opaque identifier: the prefix and 16 random bytes in base64url.
func ID(prefix string) string { return prefix + random(16) }

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand.Read never returns an error
	return base64.RawURLEncoding.EncodeToString(b)
}

// ValidID reports whether id has the form of the identifiers that ID(prefix) returns.
func ValidID(prefix, id string) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimPrefix(id, prefix))
	return err == nil && len(raw) == 16 && len(id) == len(prefix)+22 && strings.HasPrefix(id, prefix)
}

// TokenHash returns the SHA-256 of a credential. The tables api_keys and parties store this
// hash instead of the credential (SPEC 2.1, 2.3).
func TokenHash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}
