package verification

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// Openings are the known inputs and salts of the parties.
type Openings struct {
	Lists []any              // arrays of {input, salt}, or null if unknown, for each party in order
	Files []timelock.Opening // of single parties
}

const fromDeclared = "recomputed from the declared values: every party's acceptance gives this result"

// open adds the checks Commitments and, once all commitments are open, InputRoot and Result. params are
// nil if unknown. No detail of these checks contains an input or a salt.
func (r *Report) open(given Openings, params map[string]any) {
	p := r.of.Payload
	known, wrong := given.byParty(p)
	if wrong != "" {
		r.add(Commitments, wrong, "")
		return
	}
	a, _ := algorithm.Lookup(p.Algorithm)
	// Where every input of a COMPUTED deal is an acceptance, the result follows without openings. A known
	// input stands for itself: it may be a rejection that the operator hid.
	accepted := p.Outcome == certificate.Computed && a.Accepted != nil && params != nil
	if !slices.ContainsFunc(known, func(rows []timelock.Opening) bool { return len(rows) > 0 }) {
		if accepted {
			r.recompute(slices.Repeat([]map[string]any{a.Accepted}, len(known)), params, fromDeclared)
		}
		return
	}
	r.seen.opened = map[int]bool{}
	var leaves [][]byte
	var inputs []map[string]any
	closed := []int{}
	for i, rows := range known {
		for n, row := range rows {
			leaf, ok := opens(p.Parties[i].Commitment, row.Input, row.Salt)
			if !ok {
				closed = append(closed, i)
				delete(r.seen.opened, i)
				break
			}
			if n == 0 {
				r.seen.opened[i] = true
				leaves, inputs = append(leaves, leaf), append(inputs, row.Input)
			}
		}
	}
	r.hold(Commitments, len(closed) == 0, fmt.Sprintf("the input and salt of parties %v do not open the commitments", closed),
		fmt.Sprintf("%d of %d opened", len(r.seen.opened), len(known)))
	if len(r.seen.opened) < len(known) || p.InputRoot == nil {
		if accepted && len(closed) == 0 {
			all := slices.Repeat([]map[string]any{a.Accepted}, len(known))
			for i := range r.seen.opened {
				all[i] = known[i][0].Input
			}
			r.recompute(all, params, fromDeclared)
		}
		return
	}
	root := certificate.InputRoot(leaves)
	r.hold(InputRoot, root == *p.InputRoot, "the root computed from the inputs is not input_root", root)
	if params != nil {
		r.recompute(inputs, params, "recomputed from the inputs of all parties")
		if root != *p.InputRoot {
			r.seen.recomputed = ""
		}
	}
}

func (r *Report) recompute(inputs []map[string]any, params map[string]any, from string) {
	wrong := resultProblem(r.of.Payload, inputs, params)
	if r.add(Result, wrong, "byte for byte as recomputed"); wrong == "" {
		r.seen.recomputed = from
	}
}

// byParty returns all openings of each party, or what is wrong with them.
func (o Openings) byParty(p certificate.Payload) (known [][]timelock.Opening, wrong string) {
	known = make([][]timelock.Opening, len(p.Parties))
	for _, list := range o.Lists {
		wrong := inputsShape(list)
		rows, _ := list.([]any)
		if wrong == "" && len(rows) != len(known) {
			wrong = fmt.Sprintf("has %d elements, but there are %d parties", len(rows), len(known))
		}
		if wrong != "" {
			return nil, "the list of inputs " + wrong
		}
		for i, row := range rows {
			if members, ok := row.(map[string]any); ok {
				salt, _ := members["salt"].(string)
				known[i] = append(known[i], timelock.Opening{DealID: p.DealID, Party: int64(i), Input: members["input"].(map[string]any), Salt: salt})
			}
		}
	}
	for _, file := range o.Files {
		if file.DealID != p.DealID || file.Party < 0 || file.Party >= int64(len(known)) {
			return nil, fmt.Sprintf("the opening of party %d in deal %.80s does not belong to this deal", file.Party, file.DealID)
		}
		known[file.Party] = append(known[file.Party], file)
	}
	return known, ""
}

// opens returns a party's leaf under input_root, and whether input and salt open the commitment.
func opens(commitment *string, input map[string]any, salt string) (leaf []byte, ok bool) {
	if commitment == nil {
		return nil, false
	}
	canonical := canon.Encode(input)
	saltBytes, ok := canon.Open(*commitment, canonical, salt)
	return slices.Concat(canonical, saltBytes), ok
}

// recomputed returns the RFC 8785 form of the result, or null if a party rejected. It takes the beacon
// value from p.Result.
func recomputed(p certificate.Payload, inputs []map[string]any, params map[string]any) ([]byte, error) {
	a, _ := algorithm.Lookup(p.Algorithm)
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
	again, err := recomputed(p, inputs, params)
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
