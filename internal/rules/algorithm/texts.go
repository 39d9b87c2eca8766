package algorithm

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

// IDs returns the ids of the algorithms in the order of the catalogue.
func IDs() []string {
	ids := make([]string, len(algorithms))
	for i, a := range algorithms {
		ids[i] = a.ID
	}
	return ids
}

// Fill replaces the placeholders {{name}} of a text with values[name], or else with texts()[name],
// which describes the algorithms. It leaves unknown placeholders.
func Fill(text string, values map[string]string) string {
	var pairs []string
	for _, words := range []map[string]string{values, texts()} {
		for name, replacement := range words {
			pairs = append(pairs, "{{"+name+"}}", replacement)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// FillJSON fills a JSON document: it replaces a whole string "{{name}}" with values[name], encoded
// as JSON, and placeholders within strings with texts()[name]. An unknown placeholder is an error.
func FillJSON(document []byte, values map[string]any) ([]byte, error) {
	var whole, within []string
	for name, value := range values {
		encoded, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		whole = append(whole, `"{{`+name+`}}"`, string(encoded))
	}
	for name, words := range texts() {
		encoded := string(canon.Encode(words))
		within = append(within, "{{"+name+"}}", encoded[1:len(encoded)-1])
	}
	text := strings.NewReplacer(whole...).Replace(string(document))
	text = strings.NewReplacer(within...).Replace(text) // a value may have placeholders
	if at := strings.Index(text, "{{"); at >= 0 || !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("the document is not JSON or has an unknown placeholder: %.40q", text[max(at, 0):])
	}
	return []byte(text), nil
}

var texts = sync.OnceValue(func() map[string]string {
	each := func(separator string, words func(*Algorithm) string) string {
		var all []string
		for _, a := range algorithms {
			if text := words(a); text != "" {
				all = append(all, text)
			}
		}
		return strings.Join(all, separator)
	}
	members := func(of map[string]string) string {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(of)) {
			all = append(all, name+" ("+of[name]+")")
		}
		return strings.Join(all, ", ")
	}
	where := func(holds func(*Algorithm) bool) string {
		return each(", ", func(a *Algorithm) string {
			if holds(a) {
				return a.ID
			}
			return ""
		})
	}
	return map[string]string{
		"ids":           strings.Join(IDs(), ", "),
		"unique labels": where(func(a *Algorithm) bool { return a.uniqueLabels }),
		"with beacon":   where(func(a *Algorithm) bool { return a.NeedsBeacon }),
		"with reject":   where((*Algorithm).MayReject),
		"parties":       each(", ", func(a *Algorithm) string { return fmt.Sprintf("%s: %d to %d", a.ID, a.MinParties, a.MaxParties) }),
		"input sizes":   each(", ", func(a *Algorithm) string { return fmt.Sprintf("%s: %d", a.ID, a.MaxInput) }),
		"purposes":      each("; ", func(a *Algorithm) string { return a.ID + ": " + a.Purpose }),
		"params":        each(". ", func(a *Algorithm) string { return a.ID + ": " + members(a.Params.Members) }),
		"inputs":        each(". ", func(a *Algorithm) string { return a.ID + ": " + members(a.Input.Members) }),
		"results":       each(" ", func(a *Algorithm) string { return a.Result.Description }),
		"list": each("\n", func(a *Algorithm) string {
			line := fmt.Sprintf("- %s, %s, %d to %d parties: `%s` -> `%s`", a.ID, a.Purpose, a.MinParties, a.MaxParties, a.Params.Example, a.Input.Example)
			if note := a.Params.Description; note != "" {
				line += "; " + note
			}
			return line
		}),
	}
})
