package verification

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
)

// inputs adds the checks Commitments, InputRoot and, if params is not nil, Result. No detail
// of these checks contains an input or a salt.
func (r *Report) inputs(p certificate.Payload, given any, params map[string]any) {
	problem := inputsShape(given)
	rows, _ := given.([]any)
	if problem == "" && len(rows) != len(p.Parties) {
		problem = fmt.Sprintf("has %d elements, but there are %d parties", len(rows), len(p.Parties))
	}
	if problem != "" {
		names := []string{Commitments, InputRoot, Result}
		if params == nil {
			names = names[:2]
		}
		for _, name := range names {
			r.add(name, "the list of inputs "+problem, "")
		}
		return
	}

	var leaves [][]byte
	var inputs []map[string]any
	closed, opened := []int{}, 0
	for i, row := range rows {
		if row == nil {
			continue
		}
		members := row.(map[string]any)
		input := members["input"].(map[string]any)
		salt, _ := members["salt"].(string)
		leaf, ok := open(p.Parties[i].Commitment, input, salt)
		if !ok {
			closed = append(closed, i)
			continue
		}
		opened++
		leaves, inputs = append(leaves, leaf), append(inputs, input)
	}
	r.hold(Commitments, len(closed) == 0, fmt.Sprintf("the input and salt of parties %v do not open the commitments", closed),
		fmt.Sprintf("%d of %d opened", opened, len(rows)))

	root, problem := "", "an input is missing or does not open its commitment"
	if opened == len(rows) {
		root, problem = certificate.InputRoot(leaves), "the root computed from the inputs is not input_root"
	}
	shown := ""
	if p.InputRoot != nil {
		shown = *p.InputRoot
	}
	good := root
	if root == "" {
		good = "null, because not all parties have revealed"
	}
	r.hold(InputRoot, root == shown, problem, good)
	switch {
	case params == nil:
	case root == "" && p.Outcome == certificate.Void:
		r.add(Result, "", "none, because the outcome is VOID")
	case root == "":
		r.add(Result, problem, "")
	default:
		r.add(Result, resultProblem(p, inputs, params), "byte for byte as recomputed")
	}
}

// open returns a party's leaf under input_root, and whether input and salt open the commitment.
func open(commitment *string, input map[string]any, salt string) (leaf []byte, ok bool) {
	if commitment == nil {
		return nil, false
	}
	canonical := canon.Encode(input)
	saltBytes, ok := canon.Open(*commitment, canonical, salt)
	return slices.Concat(canonical, saltBytes), ok
}

// Recompute returns the RFC 8785 form of the result, or null if a party rejected. It takes the beacon
// value from p.Result.
func Recompute(p certificate.Payload, inputs []map[string]any, params map[string]any) ([]byte, error) {
	a, ok := algorithm.Lookup(p.Algorithm)
	if !ok {
		return nil, fmt.Errorf("algorithm %q is unknown", p.Algorithm)
	}
	var drawn *algorithm.Beacon
	if shown := shownBeacon(p.Result); shown.ChainHash != "" {
		drawn = &shown
	}
	result, err := a.Compute(labelsOf(p), params, inputs, drawn)
	if errors.Is(err, algorithm.ErrRejected) {
		return []byte("null"), nil
	}
	return result, err
}

func resultProblem(p certificate.Payload, inputs []map[string]any, params map[string]any) string {
	again, err := Recompute(p, inputs, params)
	if err != nil {
		return "the result cannot be recomputed: " + err.Error()
	}
	if string(again) == "null" && !slices.Equal(p.VoidFlakers, rejectors(p.Algorithm, inputs)) {
		return "void_flakers are not the parties that rejected"
	}
	if shown := canonicalResult(p); string(again) != string(shown) {
		return "the recomputed result is " + string(again)
	}
	return ""
}

func rejectors(id string, inputs []map[string]any) []int {
	a, _ := algorithm.Lookup(id)
	var parties []int
	for i, input := range inputs {
		if a.Rejects(input) {
			parties = append(parties, i)
		}
	}
	return parties
}

func drawProblem(a *algorithm.Algorithm, p certificate.Payload) string {
	again, err := a.Redraw(labelsOf(p), p.Result)
	if err != nil {
		return err.Error()
	}
	if string(again) != string(canonicalResult(p)) {
		return "the recomputed result is " + string(again)
	}
	return ""
}

func labelsOf(p certificate.Payload) []string {
	labels := make([]string, len(p.Parties))
	for i, party := range p.Parties {
		labels[i] = party.Label
	}
	return labels
}

func canonicalResult(p certificate.Payload) []byte {
	tree, err := canon.Parse(p.Result)
	if err != nil {
		return []byte("null")
	}
	return canon.Encode(tree)
}
