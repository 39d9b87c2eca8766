package canon

import (
	"encoding/hex"
	"fmt"
	"strings"
)

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
