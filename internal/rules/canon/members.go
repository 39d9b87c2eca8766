package canon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Members reads the members of a JSON object by type. It keeps the first error, so a caller
// reads all members and then asks Err once. An error names a member and its JSON type, but
// never quotes a value; only Choice and Only do.
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
	text := m.Text(name, fmt.Sprintf("one of %q", choices))
	if !slices.Contains(choices, text) {
		m.Fail("%s%s is %.60q: give one of %q", m.path, name, text, choices)
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
