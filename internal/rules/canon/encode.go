package canon

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Encode returns the RFC 8785 bytes of a tree (see the package comment). It panics on
// programming errors: v is not a tree, an integer is beyond ±MaxInt, or a string is not
// valid UTF-8.
func Encode(v any) []byte {
	return appendValue(nil, v)
}

// Marshal returns the RFC 8785 bytes of a Go value. It follows the json tags and the rules
// of encoding/json: for example, a nil slice is null. It is as strict as Parse: a float
// with a fraction, an integer beyond ±MaxInt or invalid UTF-8 is an error.
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
	panic(fmt.Sprintf("canon: type %T is not allowed in a tree", v))
}

func appendObject(b []byte, object map[string]any) []byte {
	b = append(b, '{')
	// RFC 8785 3.2.3: members are sorted by the UTF-16 code units of their names.
	for i, name := range slices.SortedFunc(maps.Keys(object), compareUTF16) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		b = appendValue(b, object[name])
	}
	return append(b, '}')
}

// compareUTF16 compares two valid UTF-8 strings by their UTF-16 code units: characters beyond
// U+FFFF, which are surrogates, come before U+E000 to U+FFFF.
func compareUTF16(x, y string) int {
	for x != "" && y != "" {
		rx, nx := utf8.DecodeRuneInString(x)
		ry, ny := utf8.DecodeRuneInString(y)
		if rx != ry {
			return cmp.Or(cmp.Compare(firstUnit(rx), firstUnit(ry)), cmp.Compare(rx, ry))
		}
		x, y = x[nx:], y[ny:]
	}
	return cmp.Compare(len(x), len(y))
}

// firstUnit returns r, or 0xD800 for all surrogates if r is beyond U+FFFF.
func firstUnit(r rune) rune {
	if r > 0xFFFF {
		return 0xD800
	}
	return r
}

// appendString appends a string with the escapes of RFC 8785 3.2.2.2.
func appendString(b []byte, s string) []byte {
	b, err := jsontext.AppendQuote(b, s)
	if err != nil {
		panic("canon: a string is not valid UTF-8")
	}
	return b
}
