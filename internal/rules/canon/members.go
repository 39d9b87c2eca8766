package canon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Members reads the members of a JSON object by type. It keeps the first error, for Err. An error never
// quotes a value, except by Choice and Only.
type Members struct {
	object map[string]any
	path   string
	err    error
}

// MembersOf returns a reader of the object. Its errors put `path`, for example "input.", before
// the names of members.
func MembersOf(object map[string]any, path string) *Members {
	return &Members{object: object, path: path}
}

// Err returns the first error.
func (m *Members) Err() error { return m.err }

// Fail keeps an error, unless there is an earlier one.
func (m *Members) Fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
}

// Has reports whether the object has the member with a value other than null.
func (m *Members) Has(name string) bool { return m.object[name] != nil }

// Text returns a required string. `want` completes the error "name is missing: give …".
func (m *Members) Text(name, want string) string { return member[string](m, name, want) }

// Integer returns a required integer, as Text does.
func (m *Members) Integer(name, want string) int64 { return member[int64](m, name, want) }

// Flag returns a required boolean, as Text does.
func (m *Members) Flag(name, want string) bool { return member[bool](m, name, want) }

// List returns a required array, as Text does.
func (m *Members) List(name, want string) []any { return member[[]any](m, name, want) }

// Object returns a required object, as Text does.
func (m *Members) Object(name, want string) map[string]any {
	return member[map[string]any](m, name, want)
}

// Texts returns a required array of strings, as Text does.
func (m *Members) Texts(name, want string) []string {
	var texts []string
	for i, v := range m.List(name, want) {
		text, ok := v.(string)
		if !ok {
			m.Fail("%s%s[%d] is %s: give a string", m.path, name, i, Kind(v))
		}
		texts = append(texts, text)
	}
	return texts
}

// Choice returns an optional string that must be one of `choices`; the default is the first.
func (m *Members) Choice(name string, choices ...string) string {
	if !m.Has(name) {
		return choices[0]
	}
	want := "`" + strings.Join(choices, "` or `") + "`"
	text := m.Text(name, want)
	if !slices.Contains(choices, text) {
		m.Fail("%s%s is %.60q: give %s", m.path, name, text, want)
	}
	return text
}

// Unknown returns the sorted names of the members that are not in `known`.
func (m *Members) Unknown(known ...string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.object)), func(name string) bool { return slices.Contains(known, name) })
}

// Only fails if the object has a member that is not in `known`.
func (m *Members) Only(known ...string) {
	if unknown := m.Unknown(known...); len(unknown) > 0 {
		m.Fail("%s%.60q is an unknown member: correct the name, or remove the member (known members: %s)", m.path, unknown[0], strings.Join(known, ", "))
	}
}

func member[T any](m *Members, name, want string) T {
	v, ok := m.object[name].(T)
	if _, there := m.object[name]; !there {
		m.Fail("%s%s is missing: give %s", m.path, name, want)
	} else if !ok {
		m.Fail("%s%s is %s: give %s", m.path, name, Kind(m.object[name]), want)
	}
	return v
}

// Kind returns the JSON type of a value for an error text, for example "an array".
func Kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case int64:
		return "an integer"
	case string:
		return "a string"
	case []any:
		return "an array"
	}
	return "an object"
}

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

// ParseCommitment returns the digest of a commitment, or ErrCommitment.
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

// ParseHash decodes a SHA-256 hash from 64 lower-case hex digits.
func ParseHash(digits string) (hash [32]byte, err error) {
	raw, err := ParseHex(digits, len(hash))
	copy(hash[:], raw)
	return hash, err
}
