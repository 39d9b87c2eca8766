package canon

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// ParseHex returns the n bytes that 2n lower-case hex digits spell.
func ParseHex(digits string, n int) ([]byte, error) {
	if len(digits) != 2*n {
		return nil, fmt.Errorf("%d characters instead of %d lower-case hex digits", len(digits), 2*n)
	}
	if strings.Trim(digits, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("a character other than the %d lower-case hex digits", 2*n)
	}
	return hex.DecodeString(digits)
}

// ParseHash returns the SHA-256 hash that 64 lower-case hex digits spell.
func ParseHash(digits string) (hash [32]byte, err error) {
	raw, err := ParseHex(digits, len(hash))
	copy(hash[:], raw)
	return hash, err
}
