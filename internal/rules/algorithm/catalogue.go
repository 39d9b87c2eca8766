package algorithm

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

var algorithms = load(splitV1, randomV1, shapleyV1)

// All returns the algorithms in the order of the catalogue. The caller MUST NOT change
// them.
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

// Catalogue returns the published description of every algorithm. The caller MUST NOT
// change the descriptions.
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

// Vector is a published example: a deal with its inputs, and the result that every
// implementation MUST compute.
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

// Vectors returns the published vectors in the order of the catalogue. The caller MUST
// NOT change what they contain.
func Vectors() []Vector {
	var all []Vector
	for _, a := range algorithms {
		all = append(all, a.Vectors...)
	}
	return all
}

// readVectors parses params and inputs with package canon, because encoding/json would
// decode their integers as inexact floats.
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
