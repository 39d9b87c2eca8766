// Package canon reads strict JSON (I-JSON with integers only), writes its RFC 8785
// form, and makes and opens commitments over that form. It is pure: no I/O, clock,
// randomness or logger.
//
// In Go, a JSON value is a tree of nil, bool, int64, string, []any and map[string]any.
// Parse returns trees and Encode accepts them.
package canon

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

const (
	// MaxInt is 2^53−1, the largest integer that every JSON reader reads exactly (RFC 7493 2.2).
	MaxInt int64 = 1<<53 - 1

	// MaxDepth is the maximum number of levels of nested arrays and objects.
	MaxDepth = 32
	// MaxInputDepth is the maximum number of levels of a party's input: a reveal, which has at most
	// MaxDepth levels, is an object around the input.
	MaxInputDepth = MaxDepth - 1
	// MaxValues bounds the memory of a small text. A certificate of 10,000 parties has over 50,000 values.
	MaxValues = 1 << 17
)

// SyntaxError says why Parse refuses a text. It MUST NOT quote a secret: at most one punctuation mark.
type SyntaxError struct {
	Offset int64 // number of bytes before the error
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("not valid JSON at byte offset %d: %s", e.Offset, e.Reason)
}

const reasonTruncated = "the text ends inside a value"

// Count returns how many values and objects Parse can find in a text at most, without building a
// tree.
func Count(data []byte) (values, objects int) {
	values = 1
	for i, text := 0, false; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			text = !text
		case text:
			if c == '\\' {
				i++
			}
		case c == '{':
			objects++
			values++
		case c == ',', c == '[':
			values++
		}
	}
	return values, objects
}

// Parse reads one JSON value (RFC 8259) that is also I-JSON (RFC 7493). It refuses a text
// that is not valid UTF-8, and a text with one of these:
//
//   - a byte order mark at the start, or anything but white space after the value
//   - a string with a lone surrogate
//   - an object with two equal member names, compared after unescaping
//   - a number with a fraction or an exponent, or an integer beyond ±MaxInt
//   - more than MaxDepth levels or more than MaxValues values
//
// Parse reads -0 as 0 and does not normalise Unicode. The error is a *SyntaxError.
func Parse(data []byte) (any, error) { return ParseWithin(data, 0) }

// ParseWithin is like Parse, but the maximum depth is MaxDepth+levels.
func ParseWithin(data []byte, levels int) (any, error) {
	p := parser{data: data, dec: jsontext.NewDecoder(bytes.NewBuffer(data)), depth: MaxDepth + levels}
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	end := data[p.dec.InputOffset():]
	if rest := bytes.TrimLeft(end, " \t\r\n"); len(rest) > 0 {
		return nil, &SyntaxError{int64(len(data) - len(rest)), "something follows the end of the value"}
	}
	return v, nil
}

// ParseObject is like Parse, but refuses a value that is not an object.
func ParseObject(data []byte) (map[string]any, error) { return parseObject(data, 0) }

// ParseInput reads an input before a party commits to it. It is like ParseObject, but the maximum depth
// is MaxInputDepth.
func ParseInput(data []byte) (map[string]any, error) {
	return parseObject(data, MaxInputDepth-MaxDepth)
}

func parseObject(data []byte, levels int) (map[string]any, error) {
	v, err := ParseWithin(data, levels)
	if err != nil {
		return nil, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, &SyntaxError{0, "the value must be a JSON object"}
	}
	return object, nil
}

type parser struct {
	data  []byte
	dec   *jsontext.Decoder
	depth int // maximum number of levels
	read  int // number of values read so far
}

func (p *parser) value() (any, error) {
	token, err := p.dec.ReadToken()
	if err != nil {
		return nil, p.syntax(err)
	}
	if p.read++; p.read > MaxValues {
		return nil, &SyntaxError{p.dec.InputOffset(), "the text has more than 131072 values"}
	}
	switch token.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return token.Bool(), nil
	case '"':
		return token.String(), nil
	case '0':
		return p.integer(token.String())
	}
	// The token opens an array or object, because the tokenizer refuses a closing bracket here.
	if p.dec.StackDepth() > p.depth {
		return nil, &SyntaxError{p.dec.InputOffset() - 1, fmt.Sprintf("arrays and objects are nested more than %d deep", p.depth)}
	}
	if token.Kind() == '[' {
		return p.array()
	}
	return p.object()
}

func (p *parser) array() (any, error) {
	list := []any{}
	for p.dec.PeekKind() != ']' {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, p.close()
}

func (p *parser) object() (any, error) {
	object := map[string]any{}
	for p.dec.PeekKind() != '}' {
		name, err := p.dec.ReadToken()
		if err != nil {
			return nil, p.syntax(err)
		}
		key := name.String() // a copy, because the next ReadToken invalidates the token
		if object[key], err = p.value(); err != nil {
			return nil, err
		}
	}
	return object, p.close()
}

func (p *parser) close() error {
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	return nil
}

func (p *parser) integer(text string) (any, error) {
	if strings.ContainsAny(text, ".eE") {
		return nil, &SyntaxError{p.dec.InputOffset() - int64(len(text)), "a number has a fraction or an exponent; only integers are allowed"}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > MaxInt || n < -MaxInt {
		return nil, &SyntaxError{p.dec.InputOffset() - int64(len(text)), "an integer is beyond ±(2^53−1), that is ±9007199254740991"}
	}
	return n, nil
}

// syntax replaces the tokenizer's error, because that error quotes the text.
func (p *parser) syntax(err error) *SyntaxError {
	if err == io.EOF {
		return &SyntaxError{int64(len(p.data)), "there is no JSON value"}
	}
	inner, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return &SyntaxError{p.dec.InputOffset(), "unreadable"}
	}
	e := &SyntaxError{Offset: inner.ByteOffset}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		e.Reason = "a member name occurs twice in one object"
	case errors.Is(err, jsontext.ErrNonStringName):
		e.Reason = "a member name must be a string in double quotes"
	case errors.Is(err, io.ErrUnexpectedEOF):
		e.Offset, e.Reason = int64(len(p.data)), reasonTruncated
	default:
		e.Reason = reasonAt(p.data[min(max(e.Offset, 0), int64(len(p.data))):])
	}
	return e
}

// reasonAt returns what is wrong at the start of rest, where the tokenizer stopped.
func reasonAt(rest []byte) string {
	r, size := utf8.DecodeRune(rest)
	switch {
	case len(rest) == 0:
		return reasonTruncated
	case r == utf8.RuneError && size <= 1:
		return "the text is not valid UTF-8"
	case r == '\uFEFF':
		return "the text begins with a byte order mark; leave it out"
	case r < ' ':
		return "a control character is not allowed here; inside a string, write it as an escape"
	case r == '\\' && isUnicodeEscape(rest):
		return "a \\u escape is half of a surrogate pair"
	case r == '\\':
		return "a string holds an unknown or unfinished escape"
	case strings.ContainsRune(`,:[]{}'`, r):
		return fmt.Sprintf("unexpected %q", r)
	}
	return "unexpected character"
}

func isUnicodeEscape(rest []byte) bool {
	if len(rest) < 6 || rest[1] != 'u' {
		return false
	}
	_, err := strconv.ParseUint(string(rest[2:6]), 16, 16)
	return err == nil
}

// Encode returns the RFC 8785 bytes of a tree. It panics on a value that Parse does not return.
func Encode(v any) []byte {
	return appendValue(nil, v)
}

// Marshal returns the RFC 8785 bytes of a Go value by the rules of encoding/json. It is as strict as Parse:
// a float with a fraction, an integer beyond ±MaxInt or invalid UTF-8 is an error.
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
