package algorithm

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

var algorithms = load(splitV1, randomV1, shapleyV1)

// All returns the algorithms in the order of the catalogue, not to be changed.
func All() []*Algorithm { return algorithms }

// Lookup returns the algorithm with the given id, and whether it exists.
func Lookup(id string) (*Algorithm, bool) {
	for _, a := range algorithms {
		if a.ID == id {
			return a, true
		}
	}
	return nil, false
}

// CatalogueEntry describes one algorithm (SPEC 2.10).
type CatalogueEntry struct {
	ID              string            `json:"id"`
	Name            string            `json:"name"`
	Parties         string            `json:"parties"`          // such as "2 to 16"
	AlgorithmParams map[string]string `json:"algorithm_params"` // from member name to description
	PartyInput      map[string]string `json:"party_input"`      // from member name to description
	TestVectors     []Vector          `json:"test_vectors"`
}

// Catalogue returns the published description of every algorithm, not to be changed.
func Catalogue() []CatalogueEntry {
	var entries []CatalogueEntry
	for _, a := range algorithms {
		entries = append(entries, CatalogueEntry{
			ID:              a.ID,
			Name:            a.Name,
			Parties:         fmt.Sprintf("%d to %d", a.MinParties, a.MaxParties),
			AlgorithmParams: a.Params.Members,
			PartyInput:      a.Input.Members,
			TestVectors:     a.Vectors,
		})
	}
	return entries
}

// Schema is the OpenAPI 3.0 schema of an algorithm's params, input or result.
type Schema struct {
	JSON        json.RawMessage
	Description string
	Members     map[string]string // from member name to description
	Example     json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Schema) UnmarshalJSON(text []byte) error {
	var parts struct {
		Description string
		Properties  map[string]struct{ Description string }
		Example     json.RawMessage
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	var example bytes.Buffer
	if err := json.Compact(&example, parts.Example); err != nil {
		return fmt.Errorf("example: %w", err)
	}
	*s = Schema{JSON: bytes.Clone(text), Description: parts.Description, Members: map[string]string{}, Example: example.Bytes()}
	for name, member := range parts.Properties {
		s.Members[name] = member.Description
	}
	return nil
}

//go:embed schemas/*.json vectors/*.json
var files embed.FS

// load reads the embedded files of the algorithms. A file that is missing or malformed is a bug.
func load(all ...*Algorithm) []*Algorithm {
	for _, a := range all {
		schemas, missing := files.ReadFile("schemas/" + a.ID + ".json")
		vectors, lacking := files.ReadFile("vectors/" + a.ID + ".json")
		parts := struct{ Params, Input, Result *Schema }{&a.Params, &a.Input, &a.Result}
		malformed := json.Unmarshal(schemas, &parts)
		var unreadable error
		a.Vectors, unreadable = readVectors(vectors)
		if err := errors.Join(missing, lacking, malformed, unreadable); err != nil {
			panic(a.ID + ": " + err.Error())
		}
	}
	return all
}

// Vector is a published deal with its inputs, and the result that every implementation MUST compute.
type Vector struct {
	VectorID       string          `json:"vector_id"`
	Algorithm      string          `json:"algorithm"`
	Description    string          `json:"description"`
	Input          VectorInput     `json:"input"`
	ExpectedOutput json.RawMessage `json:"expected_output"` // RFC 8785 bytes of the result; null if the deal ends VOID
}

// VectorInput contains what a vector's deal declares and what its parties reveal.
type VectorInput struct {
	PartyLabels     []string         `json:"party_labels"`
	AlgorithmParams map[string]any   `json:"algorithm_params"`
	PartyInputs     []map[string]any `json:"party_inputs"` // in the order of party_labels
}

// Void reports whether the vector's deal ends VOID.
func (v Vector) Void() bool { return string(v.ExpectedOutput) == "null" }

// Beacon returns the beacon round in the expected output, or nil if there is none.
func (v Vector) Beacon() *Beacon {
	var output struct {
		Beacon *Beacon `json:"beacon"`
	}
	if err := json.Unmarshal(v.ExpectedOutput, &output); err != nil {
		panic(err)
	}
	return output.Beacon
}

// Vectors returns the published vectors in the order of the catalogue, not to be changed.
func Vectors() []Vector {
	var all []Vector
	for _, a := range algorithms {
		all = append(all, a.Vectors...)
	}
	return all
}

// readVectors uses package canon, because encoding/json would decode integers as inexact floats.
func readVectors(data []byte) (vectors []Vector, err error) {
	tree, err := canon.Parse(data)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(canon.Encode(tree), &vectors); err != nil {
		return nil, err
	}
	for i, v := range tree.([]any) {
		input := v.(map[string]any)["input"].(map[string]any)
		vectors[i].Input.AlgorithmParams = input["algorithm_params"].(map[string]any)
		for party, own := range input["party_inputs"].([]any) {
			vectors[i].Input.PartyInputs[party] = own.(map[string]any)
		}
	}
	return vectors, nil
}

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
		"input sizes":   each("; ", func(a *Algorithm) string { return a.ID + ": " + cmp.Or(a.InputSize, fmt.Sprint(a.MaxInput)) }),
		"purposes":      each("; ", func(a *Algorithm) string { return a.ID + ": " + a.Purpose }),
		"params":        each(". ", func(a *Algorithm) string { return a.ID + ": " + members(a.Params.Members) }),
		"inputs":        each(". ", func(a *Algorithm) string { return a.ID + ": " + members(a.Input.Members) }),
		"list": each("\n", func(a *Algorithm) string {
			line := fmt.Sprintf("- %s, %s, %d to %d parties: `%s` -> `%s`", a.ID, a.Purpose, a.MinParties, a.MaxParties, a.Params.Example, a.Input.Example)
			if note := a.Params.Description; note != "" {
				line += "; " + note
			}
			return line
		}),
	}
})
