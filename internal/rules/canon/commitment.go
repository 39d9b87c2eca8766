package canon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const commitmentPrefix = "sha256:"

// MaxSalt is the maximum size of a salt, in bytes.
const MaxSalt = 1024

// ErrCommitment is returned for a string that is not a commitment.
var ErrCommitment = errors.New("the commitment is not \"sha256:\" and 64 lower-case hex digits")

// Commitment returns "sha256:" and the lower-case hex of SHA-256(input ‖ salt)
// (SPEC 2.6). `input` MUST be the RFC 8785 bytes of the party input.
func Commitment(input, salt []byte) string {
	h := sha256.New()
	h.Write(input)
	h.Write(salt)
	return commitmentPrefix + hex.EncodeToString(h.Sum(nil))
}

// ParseCommitment returns the digest of a commitment, or ErrCommitment if s does
// not have the form that Commitment returns.
func ParseCommitment(s string) (digest [32]byte, err error) {
	digits, ok := strings.CutPrefix(s, commitmentPrefix)
	if digest, err = ParseHash(digits); !ok || err != nil {
		return [32]byte{}, ErrCommitment
	}
	return digest, nil
}

// Open reports whether input and salt open the commitment. If they do, saltBytes are the
// salt bytes that the hash covers. Open tries the salt's UTF-8 bytes first. If the salt is
// an even number of hex digits, Open then tries the bytes that the digits encode. `input` MUST
// be the RFC 8785 bytes of an object: in the hash the closing brace separates the input from
// the salt.
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

// ParseHex decodes 2n lower-case hex digits to n bytes. Any other text is an error.
func ParseHex(digits string, n int) ([]byte, error) {
	if len(digits) != 2*n {
		return nil, fmt.Errorf("%d characters instead of %d lower-case hex digits", len(digits), 2*n)
	}
	if strings.Trim(digits, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("a character outside 0-9 and a-f; %d lower-case hex digits are required", 2*n)
	}
	return hex.DecodeString(digits)
}

// ParseHash decodes a SHA-256 hash from 64 lower-case hex digits. Any other text is an
// error.
func ParseHash(digits string) (hash [32]byte, err error) {
	raw, err := ParseHex(digits, len(hash))
	copy(hash[:], raw)
	return hash, err
}
