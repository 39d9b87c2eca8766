// Package sealing is what a server secret does: it encrypts revealed inputs at
// rest and keys the idempotency records. All replicas hold the same secrets
// (Secrets); whoever holds only the database reads nothing of either.
package sealing

import (
	"bytes"
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
	"io"
	"strings"
)

// Secret is one server secret. It MUST NOT be logged; its text forms show nothing.
type Secret struct {
	inputs      cipher.AEAD
	mac         []byte
	root        []byte
	fingerprint []byte
	mark        []byte // names it in front of a sealed input
	marks       bool   // whether SealInput writes the mark
}

// Format shows nothing of the secret, whatever the verb, of a pointer or a value.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "sealing.Secret") }

// New derives the keys from a secret of at least 32 bytes.
func New(secret []byte) (*Secret, error) {
	if len(secret) < 32 {
		return nil, errors.New("server secret: less than 32 bytes")
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
	s.mark = append([]byte(markPrefix), s.fingerprint[:idSize]...)
	key, err := hkdf.Expand(sha256.New, root, "inputs", 32)
	if err != nil {
		return nil, err
	}
	s.inputs, err = newAEAD(key)
	return s, err
}

// Fingerprint names the secret in 16 bytes, and does not lead to it.
func (s *Secret) Fingerprint() []byte { return s.fingerprint }

// ID is how people and inputs name the secret: the first bytes of its fingerprint.
func (s *Secret) ID() string { return ShortID(s.fingerprint) }

// AES-256-GCM with a random 96-bit nonce before the ciphertext.
func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Input is a revealed input as it is kept: its RFC 8785 bytes, the salt as it
// was sent, and the salt bytes that opened the commitment.
type Input struct {
	Canonical []byte
	Salt      string
	SaltBytes []byte
}

// SealInput encrypts a party's input; the deal and the party are bound to it.
func (s *Secret) SealInput(dealID string, party int, in Input) []byte {
	plain := binary.BigEndian.AppendUint32(nil, uint32(len(in.Salt)))
	plain = append(plain, in.Salt...)
	plain = binary.BigEndian.AppendUint32(plain, uint32(len(in.SaltBytes)))
	plain = append(plain, in.SaltBytes...)
	plain = append(plain, in.Canonical...)
	var sealed []byte
	if s.marks {
		sealed = append(make([]byte, 0, len(s.mark)+len(plain)+s.inputs.Overhead()), s.mark...)
	}
	return s.inputs.Seal(sealed, nil, plain, place(dealID, party))
}

// Marked reports whether a sealed input names this secret.
func (s *Secret) Marked(sealed []byte) bool { return bytes.HasPrefix(sealed, s.mark) }

// OpenInput decrypts what SealInput made for the same deal and party, marked or not.
func (s *Secret) OpenInput(dealID string, party int, sealed []byte) (Input, error) {
	body, _ := bytes.CutPrefix(sealed, s.mark)
	plain, err := s.inputs.Open(nil, nil, body, place(dealID, party))
	if err != nil && len(body) < len(sealed) { // one without a mark may begin like a mark
		plain, err = s.inputs.Open(nil, nil, sealed, place(dealID, party))
	}
	if err != nil {
		return Input{}, fmt.Errorf("a stored input does not open: party %d of deal %s: another server secret, or a changed row", party, dealID)
	}
	salt, rest, ok := cut(plain)
	saltBytes, canonical, ok2 := cut(rest)
	if !ok || !ok2 {
		return Input{}, fmt.Errorf("a stored input is malformed: party %d of deal %s", party, dealID)
	}
	return Input{Canonical: canonical, Salt: string(salt), SaltBytes: saltBytes}, nil
}

func cut(b []byte) (head, rest []byte, ok bool) {
	if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	return b[4 : 4+n], b[4+n:], true
}

func place(dealID string, party int) []byte {
	return binary.BigEndian.AppendUint32([]byte("input\x00"+dealID+"\x00"), uint32(party))
}

// MAC is an HMAC-SHA-256 over the length-prefixed parts.
func (s *Secret) MAC(parts ...[]byte) []byte {
	h := hmac.New(sha256.New, s.mac)
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return h.Sum(nil)
}

// Sealed encrypts text under a key that needs the server secret and all of
// keyed, which the server does not keep.
func (s *Secret) Sealed(text []byte, keyed ...[]byte) ([]byte, error) {
	aead, err := s.keyedAEAD(keyed)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, text, nil), nil
}

// Unsealed decrypts what Sealed made with the same keyed.
func (s *Secret) Unsealed(sealed []byte, keyed ...[]byte) ([]byte, error) {
	aead, err := s.keyedAEAD(keyed)
	if err != nil {
		return nil, err
	}
	text, err := aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, errors.New("a stored response does not open: another server secret, or a changed row")
	}
	return text, nil
}

func (s *Secret) keyedAEAD(keyed [][]byte) (cipher.AEAD, error) {
	salt := sha256.New()
	for _, part := range keyed {
		salt.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		salt.Write(part)
	}
	key, err := hkdf.Key(sha256.New, s.root, salt.Sum(nil), "idempotency response", 32)
	if err != nil {
		return nil, err
	}
	return newAEAD(key)
}

// Token makes a credential: the prefix and 32 random bytes in base64url.
func Token(prefix string) string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return prefix + encode(b[:])
}

// ID makes an opaque identifier: the prefix and 16 random bytes in base64url.
func ID(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return prefix + encode(b[:])
}

// ValidID reports whether an identifier has the form that ID gives.
func ValidID(prefix, id string) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimPrefix(id, prefix))
	return err == nil && len(raw) == 16 && len(id) == len(prefix)+22 && strings.HasPrefix(id, prefix)
}

// TokenHash is how a credential is stored. SPEC 2.1, 2.3: only hashed.
func TokenHash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
