package timelock

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/rules/drand"
)

var (
	// ErrSeal is returned by Check for a text that is not a seal for the chain and the round.
	ErrSeal = errors.New("the seal is refused")

	// ErrNotOpened is returned by Open for a seal that passed Check, but does not open. Only the
	// signature of the round shows this.
	ErrNotOpened = errors.New("the seal does not open")
)

// Random holds the random bytes of one seal: the file key, sigma, and the nonce of the payload. They
// MUST come from a cryptographic generator, and MUST NOT be used for a second seal.
type Random [3 * keySize]byte

// Seal returns the armored text of a seal, which opens to the plaintext at the round. The round is
// from 1 to drand.MaxRound.
func Seal(c drand.Chain, round int64, plaintext []byte, random Random) string {
	fileKey, sigma, nonce := [keySize]byte(random[:keySize]), [keySize]byte(random[keySize:2*keySize]), random[2*keySize:]
	f := file{round: round, chain: c.Hash, body: wrap(c, round, fileKey, sigma).bytes()}
	f.mac = headerMAC(fileKey, f.header())
	return string(armor(slices.Concat(f.whole(), encryptPayload(fileKey, nonce, plaintext))))
}

// Sealed is a seal that passed Check.
type Sealed struct {
	file
	wrapped wrapped
}

// Check reads a seal and checks everything that can be checked before the round: that the text has
// at most `limit` bytes, is in the canonical form with exactly one stanza, names the chain and the
// round, and holds a point of G2. So a seal has exactly one accepted text and one hash. The error
// wraps ErrSeal.
//
// Check cannot detect a seal for another round or chain under a changed stanza, and a seal of
// random bytes or of a wrong opening. Open detects these.
func Check(c drand.Chain, seal string, round int64, limit int) (Sealed, error) {
	if len(seal) > limit {
		return Sealed{}, fmt.Errorf("%w: it has %d bytes, and at most %d are allowed", ErrSeal, len(seal), limit)
	}
	raw, err := unarmor(seal)
	if err != nil {
		return Sealed{}, fmt.Errorf("%w: %w", ErrSeal, err)
	}
	f, err := parseFile(raw)
	switch {
	case err != nil:
		return Sealed{}, fmt.Errorf("%w: %w", ErrSeal, err)
	case f.chain != c.Hash:
		return Sealed{}, fmt.Errorf("%w: it is for the beacon chain %.64q; seal for chain %s", ErrSeal, f.chain, c.Hash)
	case f.round != round:
		return Sealed{}, fmt.Errorf("%w: it is for round %d; seal for round %d", ErrSeal, f.round, round)
	}
	s := Sealed{file: f}
	if s.wrapped, err = parseWrapped(f.body); err != nil {
		return Sealed{}, fmt.Errorf("%w: the point U of its stanza %w", ErrSeal, err)
	}
	return s, nil
}

// Open returns the plaintext. The key MUST be that of the chain and the round for which Check
// accepted the seal. The error wraps ErrNotOpened.
func (s Sealed) Open(key Key) ([]byte, error) {
	if key.chain != s.chain || key.round != s.round {
		return nil, fmt.Errorf("%w: the key is of round %d of chain %.64s, and the seal is for round %d of chain %s", ErrNotOpened, key.round, key.chain, s.round, s.chain)
	}
	fileKey, err := key.unwrap(s.wrapped)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotOpened, err)
	}
	if !hmac.Equal(s.mac, headerMAC(fileKey, s.header())) {
		return nil, fmt.Errorf("%w: the MAC of its header is not under its file key", ErrNotOpened)
	}
	plaintext, err := decryptPayload(fileKey, s.payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotOpened, err)
	}
	return plaintext, nil
}

// Hash returns the SHA-256 of a seal's armored text, in 64 hex digits.
func Hash(seal string) string {
	sum := sha256.Sum256([]byte(seal))
	return hex.EncodeToString(sum[:])
}
