package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// mutator makes broken and odd texts out of valid ones, the same for a seed.
type mutator struct{ *rand.Rand }

// scraps are what a mutation puts in.
var scraps = []string{
	"null", "true", "0", "-0", "-1", "1.5", "1e3", "9007199254740991", "9007199254740992", "-9007199254740992", `""`, `"x"`, `"\u0000"`, `"\ud800"`, `"é"`, "[]", "{}", "[null]", `{"a":{}}`,
	"{", "}", "[", "]", ",", ":", `"`, `\`, "\x00", "\xff", " ", "\n", "\ufeff", `"split.v1"`, `"random.v1"`, `"shapley.v1"`, `"sha256:"`, `"__proto__"`, `{"$ref":"#"}`, `"' OR 1=1 --"`,
}

func (m mutator) scrap() string {
	if m.IntN(20) == 0 {
		return nested("[", "", "]", 1+m.IntN(60))
	}
	return scraps[m.IntN(len(scraps))]
}

// text changes the bytes of a text in one place.
func (m mutator) text(s string) string {
	i := m.IntN(len(s) + 1)
	j := i + m.IntN(min(len(s)-i, 40)+1)
	switch m.IntN(5) {
	case 0:
		return s[:i] // cut off
	case 1:
		return s[:i] + s[j:] // taken out
	case 2:
		return s[:j] + s[i:] // doubled
	case 3:
		return s[:i] + m.scrap() + s[j:] // replaced
	default:
		if i == len(s) {
			return s + m.scrap()
		}
		return s[:i] + string([]byte{s[i] ^ byte(1<<m.IntN(8))}) + s[i+1:] // one bit
	}
}

// tree changes one value of a JSON tree, one name, or one member.
func (m mutator) tree(v any) any {
	switch v := v.(type) {
	case map[string]any:
		// Go gives the members in another order each time.
		names := slices.Sorted(maps.Keys(v))
		if len(names) == 0 || m.IntN(8) == 0 {
			return m.value()
		}
		name := names[m.IntN(len(names))]
		switch m.IntN(6) {
		case 0:
			delete(v, name)
		case 1:
			v[name+"x"] = v[name]
			delete(v, name)
		case 2:
			v[fmt.Sprint("more", m.IntN(9))] = m.value()
		default:
			v[name] = m.tree(v[name])
		}
		return v
	case []any:
		if len(v) == 0 || m.IntN(4) == 0 {
			return m.value()
		}
		i := m.IntN(len(v))
		if m.IntN(4) == 0 {
			return append(v, v[i])
		}
		v[i] = m.tree(v[i])
		return v
	}
	return m.value()
}

func (m mutator) value() any { return json.RawMessage(m.scrap()) }

// mutated gives a text made of a valid one by one to three changes.
func (m mutator) mutated(valid string) string {
	var tree any
	if m.IntN(2) == 0 && json.Unmarshal([]byte(valid), &tree) == nil {
		var b strings.Builder
		write(&b, m.tree(tree))
		valid = b.String()
		if m.IntN(2) == 0 {
			return valid
		}
	}
	for range 1 + m.IntN(2) {
		valid = m.text(valid)
	}
	return valid
}

// write writes a tree whose raw messages need not be JSON.
func write(b *strings.Builder, v any) {
	switch v := v.(type) {
	case json.RawMessage:
		b.Write(v)
	case map[string]any:
		b.WriteByte('{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			text, _ := json.Marshal(name)
			b.Write(text)
			b.WriteByte(':')
			write(b, v[name])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, member := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			write(b, member)
		}
		b.WriteByte(']')
	default:
		text, _ := json.Marshal(v)
		b.Write(text)
	}
}
