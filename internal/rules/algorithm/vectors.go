package algorithm

import (
	"encoding/json"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

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
