package canon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

const commitmentPrefix = "sha256:"

// ErrCommitment says how a commitment is written.
var ErrCommitment = errors.New("a commitment is \"sha256:\" followed by 64 lower-case hex digits")

// Commitment is "sha256:" and the lower-case hex of SHA-256(input ‖ salt).
// input MUST be the RFC 8785 bytes of the party input.
func Commitment(input, salt []byte) string {
	// SPEC 2.6: SHA-256 of the canonical JSON of the party input and the salt bytes.
	h := sha256.New()
	h.Write(input)
	h.Write(salt)
	return commitmentPrefix + hex.EncodeToString(h.Sum(nil))
}

// ParseCommitment gives the digest of a commitment, or ErrCommitment where s is
// not written as Commitment writes it.
func ParseCommitment(s string) (digest [32]byte, err error) {
	digits, ok := strings.CutPrefix(s, commitmentPrefix)
	if digest, err = ParseHash(digits); !ok || err != nil {
		return [32]byte{}, ErrCommitment
	}
	return digest, nil
}

// Open reports whether input and salt open the commitment, and returns the salt
// bytes of the reading that does. The salt's own UTF-8 bytes are tried first;
// then, where the salt is an even number of hex digits of either case, the bytes
// that they spell, because a party may have committed over those. input MUST be
// the RFC 8785 bytes of an object: an object ends where its brace closes, so
// both readings bind the party to the same input.
func Open(commitment string, input []byte, salt string) (saltBytes []byte, ok bool) {
	literal := []byte(salt)
	if Commitment(input, literal) == commitment {
		return literal, true
	}
	decoded, err := hex.DecodeString(salt)
	if err == nil && Commitment(input, decoded) == commitment {
		return decoded, true
	}
	return nil, false
}
