package canon

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"
)

func canonical(t *testing.T, in string) string {
	t.Helper()
	tree, err := Parse([]byte(in))
	if err != nil {
		t.Fatalf("Parse(%q): %v, want no error", in, err)
	}
	return string(Encode(tree))
}

// The rows 3.2.2 and 3.2.3 are the examples of these sections of RFC 8785. Row 3.2.2 leaves
// out the example's numbers, which have a fraction or an exponent.
func TestEncodeRFC8785(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ section, in, want string }{
		{"3.2.2", `{
			"string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
			"literals": [null, true, false]
		}`, `{"literals":[null,true,false],"string":"€$\u000f\nA'B\"\\\\\"/"}`},
		{"3.2.3", `{
			"\u20ac": "Euro Sign",
			"\r": "Carriage Return",
			"\ufb33": "Hebrew Letter Dalet With Dagesh",
			"1": "One",
			"\ud83d\ude00": "Emoji: Grinning Face",
			"\u0080": "Control",
			"\u00f6": "Latin Small Letter O With Diaeresis"
		}`, "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\"," +
			"\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}"},
		{"escapes", `"\u0000\u0007\b\t\n\u000b\f\r\u001f\u007f\u2028<>&\/"`,
			"\"\\u0000\\u0007\\b\\t\\n\\u000b\\f\\r\\u001f\u007f\u2028<>&/\""},
		{"numbers", `[-0, 0, -1, 9007199254740991, -9007199254740991]`, `[0,0,-1,9007199254740991,-9007199254740991]`},
		{"prefixes", `{"aa":1,"a":2,"":3,"b":4,"A":5}`, `{"":3,"A":5,"a":2,"aa":1,"b":4}`},
		{"no normalisation", `{"\u00c5":1,"\u212b":2,"A\u030a":3}`, "{\"A\u030a\":3,\"\u00c5\":1,\"\u212b\":2}"},
		{"nested", ` { "b" : [ { "d" : { } , "c" : [ ] } ] , "a" : null } `, `{"a":null,"b":[{"c":[],"d":{}}]}`},
	} {
		if got := canonical(t, tc.in); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.section, got, tc.want)
		}
	}
}

func TestEncodePanicsUnlessGivenATree(t *testing.T) {
	t.Parallel()
	for _, v := range []any{1, 1.0, []string{"a"}, map[string]int64{}, MaxInt + 1, -MaxInt - 1, "\xff",
		map[string]any{"\xff": nil}, []any{struct{}{}}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Encode(%#v) does not panic", v)
				}
			}()
			Encode(v)
		}()
	}
}

func TestMarshal(t *testing.T) {
	t.Parallel()
	type inner struct {
		Z int64  `json:"z"`
		A *int64 `json:"a"`
	}
	got, err := Marshal(struct {
		Name   string         `json:"name"`
		Gone   string         `json:"gone,omitempty"`
		List   []string       `json:"list"`
		Empty  []string       `json:"empty"`
		Inner  inner          `json:"inner"`
		Any    map[string]any `json:"any"`
		Hidden string         `json:"-"`
	}{Name: "<é>", Empty: []string{}, Inner: inner{Z: MaxInt}, Any: map[string]any{"b": 1, "a": 2.0}})
	want := `{"any":{"a":2,"b":1},"empty":[],"inner":{"a":null,"z":9007199254740991},"list":null,"name":"<é>"}`
	if err != nil || string(got) != want {
		t.Errorf("Marshal of a struct = %s, %v; want %s", got, err, want)
	}
	for _, v := range []any{1.5, int64(math.MaxInt64), uint64(math.MaxUint64), "\xff", map[string]int{"\xff": 1},
		math.Inf(1), func() {}} {
		if got, err := Marshal(v); err == nil {
			t.Errorf("Marshal of a %T = %s, want an error", v, got)
		}
	}
}

func text() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		r := rapid.OneOf(
			rapid.SampledFrom([]rune("ab\"\\/\x00\x1f\b\t\n\f\r\x7fé€\u2028\ud7ff\ue000\ufb33\uffff😀\U00010000\U0010ffff")),
			rapid.Rune(),
		)
		return strings.ToValidUTF8(string(rapid.SliceOfN(r, 0, 6).Draw(t, "runes")), "?")
	})
}

func tree(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.Int64Range(-MaxInt, MaxInt).AsAny(),
		text().AsAny(),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	below := rapid.Deferred(func() *rapid.Generator[any] { return tree(depth - 1) })
	return rapid.OneOf(append(leaves,
		rapid.SliceOfN(below, 0, 4).AsAny(),
		rapid.MapOfN(text(), below, 0, 6).AsAny())...)
}

func TestEncodeAgreesWithAnotherImplementation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// jcs accepts only an object or an array at the top level.
		own := Encode([]any{tree(4).Draw(t, "tree")})
		theirs, err := jcs.Transform(own)
		if err != nil || !bytes.Equal(own, theirs) {
			t.Fatalf("Encode = %s\n   want %s, as jcs encodes it (%v)", own, theirs, err)
		}
		back, err := Parse(own)
		if err != nil || !bytes.Equal(Encode(back), own) {
			t.Fatalf("Parse(%s) = %v, %v; want a tree with the same encoding", own, back, err)
		}
		viaTags, err := Marshal(back)
		if err != nil || !bytes.Equal(viaTags, own) {
			t.Fatalf("Marshal = %s, %v; want %s", viaTags, err, own)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-0,"\ud83d\ude02"],"b":null}`, `{"a":1,"\u0061":2}`, `"\ud800"`, "\"\xff\"", `1.0`,
		`[[[[1]]]]`, "\uFEFF1", `{"a":9007199254740992}`, `[1,]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := Parse(data)
		if err != nil {
			e := err.(*SyntaxError)
			if e.Offset < 0 || e.Offset > int64(len(data)) {
				t.Fatalf("the error's offset is %d, want 0 to %d, the length of the text", e.Offset, len(data))
			}
			return
		}
		first := Encode(tree)
		again, err := Parse(first)
		if err != nil {
			t.Fatalf("Parse refuses %s, which Encode wrote: %v", first, err)
		}
		if second := Encode(again); !bytes.Equal(first, second) {
			t.Fatalf("parsed and encoded again: got %s, want %s", second, first)
		}
		if first[0] != '{' && first[0] != '[' {
			return
		}
		if theirs, err := jcs.Transform(data); err != nil || !bytes.Equal(theirs, first) {
			t.Fatalf("Encode = %s; want %s, as jcs encodes it (%v)", first, theirs, err)
		}
	})
}
