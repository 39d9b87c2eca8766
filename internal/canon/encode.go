package canon

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Encode gives the RFC 8785 bytes of a tree. It panics on a type that Parse
// does not make, on an integer beyond ±MaxInt and on a string that is not
// valid UTF-8: those are programming errors, for which there is no JSON.
func Encode(v any) []byte {
	return appendValue(nil, v)
}

// Marshal gives the RFC 8785 bytes of any Go value by its json tags, with the
// rules of encoding/json (a nil slice is null), and as strict as Parse: a float
// with a fraction, an integer beyond ±MaxInt or a string that is not valid
// UTF-8 is an error.
func Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v, jsonv1.DefaultOptionsV1(),
		jsontext.AllowInvalidUTF8(false), jsontext.AllowDuplicateNames(false))
	if err != nil {
		return nil, err
	}
	tree, err := Parse(data)
	if err != nil {
		return nil, err
	}
	return Encode(tree), nil
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case int64:
		if v > MaxInt || v < -MaxInt {
			panic(fmt.Sprintf("canon: integer %d is beyond ±(2^53−1)", v))
		}
		return strconv.AppendInt(b, v, 10)
	case string:
		return appendString(b, v)
	case []any:
		b = append(b, '[')
		for i, element := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, element)
		}
		return append(b, ']')
	case map[string]any:
		return appendObject(b, v)
	}
	panic(fmt.Sprintf("canon: a tree holds no %T", v))
}

func appendObject(b []byte, object map[string]any) []byte {
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	// RFC 8785 3.2.3: members are sorted by the UTF-16 code units of their names.
	slices.SortFunc(names, compareUTF16)
	b = append(b, '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		b = appendValue(b, object[name])
	}
	return append(b, '}')
}

// compareUTF16 orders two valid UTF-8 strings as their UTF-16 code units. That
// differs from the order of the bytes only where a character beyond U+FFFF,
// whose units begin at 0xD800, meets one of U+E000 to U+FFFF.
func compareUTF16(x, y string) int {
	n := min(len(x), len(y))
	i := 0
	for i < n && x[i] == y[i] {
		i++
	}
	if i == n {
		return cmp.Compare(len(x), len(y))
	}
	for i > 0 && !utf8.RuneStart(x[i]) {
		i--
	}
	rx, _ := utf8.DecodeRuneInString(x[i:])
	ry, _ := utf8.DecodeRuneInString(y[i:])
	if (rx > 0xFFFF) != (ry > 0xFFFF) {
		return cmp.Compare(firstUnit(rx), firstUnit(ry))
	}
	return cmp.Compare(rx, ry)
}

// firstUnit is the first UTF-16 code unit of r; for r beyond U+FFFF any high
// surrogate will do, since it is compared with a character that is none.
func firstUnit(r rune) rune {
	if r > 0xFFFF {
		return 0xD800
	}
	return r
}

// appendString writes a string with the escapes of RFC 8785 3.2.2.2 and no
// others: U+007F, U+2028, '<' and '/' stand for themselves.
func appendString(b []byte, s string) []byte {
	if !utf8.ValidString(s) {
		panic("canon: a string is not valid UTF-8")
	}
	b = append(b, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\t':
			b = append(b, '\\', 't')
		case '\n':
			b = append(b, '\\', 'n')
		case '\f':
			b = append(b, '\\', 'f')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, s[start:]...), '"')
}
