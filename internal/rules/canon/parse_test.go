package canon

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func nested(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

func TestParseAccepts(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	for _, tc := range []struct {
		in   string
		want any
	}{
		{`null`, nil},
		{`false`, false},
		{"\t\r\n1\n", int64(1)},
		{`-0`, int64(0)},
		{`-1`, int64(-1)},
		{`9007199254740991`, MaxInt},
		{`-9007199254740991`, -MaxInt},
		{`""`, ""},
		{`"\u0000"`, "\x00"},
		{`"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t"},
		{`"\uD83D\ude02"`, "😂"},
		{`"😂"`, "😂"},
		{"\"\u2028\x7f\"", "\u2028\x7f"},
		{`"\uFFFE\uFDD0"`, "\uFFFE\uFDD0"},
		{"\"e\u0301\"", "e\u0301"},
		{`[null,[],{}]`, []any{nil, []any{}, object{}}},
		{`{"a":1,"A":2,"\u00e1":3,"a\u0301":4}`, object{"a": int64(1), "A": int64(2), "\u00e1": int64(3), "a\u0301": int64(4)}},
		{`{"a":{"a":1},"b":{"a":1}}`, object{"a": object{"a": int64(1)}, "b": object{"a": int64(1)}}},
		{`{"__proto__":{},"constructor":null}`, object{"__proto__": object{}, "constructor": nil}},
	} {
		got, err := Parse([]byte(tc.in))
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("Parse(%q) = %#v, %v; want %#v", tc.in, got, err, tc.want)
		}
	}
	if _, err := Parse([]byte(nested(MaxDepth))); err != nil {
		t.Errorf("Parse of %d levels: %v, want no error", MaxDepth, err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const misplaced = "unexpected character"
	at := func(c rune) string { return fmt.Sprintf("unexpected %q", c) }
	for _, tc := range []struct {
		in     string
		offset int64
		reason string
	}{
		{``, 0, "there is no JSON value"},
		{`   `, 3, "there is no JSON value"},
		{"\uFEFF{}", 0, "the text begins with a byte order mark; leave it out"},
		{"{}\uFEFF", 2, "something follows the end of the value"},
		{`1.0`, 0, "a number has a fraction or an exponent; only integers are allowed"},
		{`[1,2.5]`, 3, "a number has a fraction or an exponent; only integers are allowed"},
		{`1e2`, 0, "a number has a fraction or an exponent; only integers are allowed"},
		{`-0.0`, 0, "a number has a fraction or an exponent; only integers are allowed"},
		{`9007199254740992`, 0, "an integer is beyond ±(2^53−1), that is ±9007199254740991"},
		{`{"a":-9007199254740992}`, 5, "an integer is beyond ±(2^53−1), that is ±9007199254740991"},
		{`01`, 1, "something follows the end of the value"},
		{`-`, 1, reasonTruncated},
		{`-a`, 1, misplaced},
		{`1.`, 2, reasonTruncated},
		{`[1.]`, 3, at(']')},
		{`.5`, 0, misplaced},
		{`+1`, 0, misplaced},
		{`NaN`, 0, misplaced},
		{`-Infinity`, 1, misplaced},
		{`{"a":1,"a":1}`, 7, "a member name occurs twice in one object"},
		{`{"a":1,"\u0061":2}`, 7, "a member name occurs twice in one object"},
		{`{"\ud83d\ude02":1,"😂":2}`, 18, "a member name occurs twice in one object"},
		{`{"":1,"":2}`, 6, "a member name occurs twice in one object"},
		{`[{"b":{"a":1,"c":2,"a":3}}]`, 19, "a member name occurs twice in one object"},
		{`{1:2}`, 1, "a member name must be a string in double quotes"},
		{`{a:2}`, 1, misplaced},
		{`{'a':2}`, 1, at('\'')},
		{`"\ud800"`, 1, "a \\u escape is half of a surrogate pair"},
		{`"\udc00"`, 1, "a \\u escape is half of a surrogate pair"},
		{`"\ud800\u0041"`, 1, "a \\u escape is half of a surrogate pair"},
		{`{"\ud800":1}`, 2, "a \\u escape is half of a surrogate pair"},
		{"\"\xed\xa0\x80\"", 1, "the text is not valid UTF-8"},
		{"\"\xff\"", 1, "the text is not valid UTF-8"},
		{"\"ab\xe2\x82\"", 3, "the text is not valid UTF-8"},
		{"{\"\xff\":1}", 2, "the text is not valid UTF-8"},
		{"[\xff]", 1, "the text is not valid UTF-8"},
		{"\xfe\xff\x00{\x00}", 0, "the text is not valid UTF-8"},
		{"{\x00}\x00", 1, "a control character is not allowed here; inside a string, write it as an escape"},
		{`"\x41"`, 1, "a string holds an unknown or unfinished escape"},
		{`"\u12"`, 1, "a string holds an unknown or unfinished escape"},
		{`"\'"`, 1, "a string holds an unknown or unfinished escape"},
		{"\"a\nb\"", 2, "a control character is not allowed here; inside a string, write it as an escape"},
		{"\"\x00\"", 1, "a control character is not allowed here; inside a string, write it as an escape"},
		{`"abc`, 4, reasonTruncated},
		{`"\`, 2, reasonTruncated},
		{`'a'`, 0, at('\'')},
		{`[1,]`, 2, at(',')},
		{`[,1]`, 1, at(',')},
		{`[1 2]`, 3, misplaced},
		{`[1`, 2, reasonTruncated},
		{`]`, 0, at(']')},
		{`[}`, 1, at('}')},
		{`{"a":1]`, 6, at(']')},
		{`{"a":1,}`, 6, at(',')},
		{`{"a"}`, 4, at('}')},
		{`{"a":}`, 5, at('}')},
		{`{"a" 1}`, 5, misplaced},
		{`{"a":1 "b":2}`, 7, misplaced},
		{`{"a"`, 4, reasonTruncated},
		{`{`, 1, reasonTruncated},
		{`nul`, 3, reasonTruncated},
		{`[1]//x`, 3, "something follows the end of the value"},
		{`/*x*/[1]`, 0, misplaced},
		{`1 2`, 2, "something follows the end of the value"},
		{"1\x00", 1, "something follows the end of the value"},
		{"[1]\f", 3, "something follows the end of the value"},
		{"\f[1]", 0, "a control character is not allowed here; inside a string, write it as an escape"},
		{"[\u00a01]", 1, misplaced},
		{nested(MaxDepth + 1), MaxDepth, "arrays and objects are nested more than 32 deep"},
		{strings.Repeat(`{"a":`, MaxDepth+1), MaxDepth * 5, "arrays and objects are nested more than 32 deep"},
		{strings.Repeat("[", 1_000_000), MaxDepth, "arrays and objects are nested more than 32 deep"},
	} {
		got, err := Parse([]byte(tc.in))
		e, ok := errors.AsType[*SyntaxError](err)
		if !ok || e.Offset != tc.offset || e.Reason != tc.reason {
			t.Errorf("Parse(%.40q) = %v, %v; want offset %d, %s", tc.in, got, err, tc.offset, tc.reason)
		}
	}
}

// The body of a reveal can hold the deepest input that ParseInput accepts, and no deeper one.
func TestAnInputThatParsesCanBeRevealed(t *testing.T) {
	for depth := MaxInputDepth - 1; depth <= MaxInputDepth+1; depth++ {
		input := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
		_, sealed := ParseInput([]byte(input))
		_, revealed := ParseObject([]byte(`{"input":` + input + `,"salt":""}`))
		if fits := depth <= MaxInputDepth; (sealed == nil) != fits || (revealed == nil) != fits {
			t.Errorf("an input %d deep: ParseInput %v, its reveal %v, want an error from both or neither", depth, sealed, revealed)
		}
	}
}

// A body may contain a salt or a sealed input at any place.
func TestSyntaxErrorEchoesNothing(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		`{"SECRET":1,"SECRET":2}`, `{"a":"SECRET" "SECRET"}`, `{"SECRET":{"SECRET":1.5}}`, `"SECRET`,
		`["SECRET`, `{"a":SECRET}`, `"SECRET\x"`, "\"SECRET\xff\"", `{"SECRET":"\ud800"}`, `"SECRET"SECRET`,
		`{"SECRET":99999999999999999999}`, `{"SECRET":`, `{"SECRET"1}`, `{SECRET:1}`,
	} {
		_, err := Parse([]byte(in))
		if err == nil {
			t.Errorf("Parse(%q): got no error, want one", in)
		} else if strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "999999") {
			t.Errorf("Parse(%q): the error quotes the text: %v", in, err)
		}
	}
}

func TestParseObjectRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{`[]`, `null`, `"a"`, ``} {
		if _, err := ParseObject([]byte(in)); err == nil {
			t.Errorf("ParseObject(%q): got no error, want one", in)
		}
	}
}

func TestParseCopiesItsInput(t *testing.T) {
	t.Parallel()
	const in = `{"a\u0062":"\ud83d\ude02","c":[1,true]}`
	data := []byte(in)
	tree, err := ParseObject(data)
	if err != nil || string(data) != in {
		t.Fatalf("ParseObject: %v; the text is now %s, want it unchanged: %s", err, data, in)
	}
	clear(data)
	want := map[string]any{"ab": "😂", "c": []any{int64(1), true}}
	if !reflect.DeepEqual(tree, want) {
		t.Errorf("after the text was cleared the tree is %v, want %v", tree, want)
	}
}

func TestCountIsABound(t *testing.T) {
	t.Parallel()
	var count func(v any) (values, objects int)
	count = func(v any) (values, objects int) {
		values = 1
		var inner []any
		switch v := v.(type) {
		case []any:
			inner = v
		case map[string]any:
			objects = 1
			for _, member := range v {
				inner = append(inner, member)
			}
		}
		for _, one := range inner {
			v, o := count(one)
			values, objects = values+v, objects+o
		}
		return values, objects
	}
	for _, text := range []string{`1`, `{}`, `[]`, `[[],[],{}]`, `{"a":1,"b":[1,2,{"c":null}]}`, `{"\"":"{[,\\","\\":["\\\"",","]}`, `["a,b",{"{":"["}]`, ` { "a" : [ ] } `} {
		tree, err := Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		values, objects := Count([]byte(text))
		wantValues, wantObjects := count(tree)
		if values < wantValues || values > 2*wantValues || objects != wantObjects {
			t.Errorf("Count(%s) = %d, %d, want at least %d values and %d objects", text, values, objects, wantValues, wantObjects)
		}
	}
}
