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
	// If every input of a COMPUTED deal is an acceptance, the params alone give the result. A known input
	// stands for itself: it may be a rejection that the operator hid.
	accepted := p.Outcome == certificate.Computed && a.Accepted != nil && params != nil
	if !slices.ContainsFunc(known, func(rows []timelock.Opening) bool { return len(rows) > 0 }) {
		if accepted {
			r.supposed(slices.Repeat([]map[string]any{a.Accepted}, len(known)), params)
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
	complete := len(r.seen.opened) == len(known) && p.InputRoot != nil
	root := certificate.InputRoot(leaves)
	if complete {
		r.hold(InputRoot, root == *p.InputRoot, "the root computed from the inputs is not input_root", root)
	}
	if liar := r.falselyRejected(known); liar >= 0 {
		r.add(Result, fmt.Sprintf("the certificate says that party %d rejected, but its input does not reject", liar), "")
		return
	}
	if !complete {
		if accepted && len(closed) == 0 {
			all := slices.Repeat([]map[string]any{a.Accepted}, len(known))
			for i := range r.seen.opened {
				all[i] = known[i][0].Input
			}
			r.supposed(all, params)
		}
		return
	}
	if params != nil {
		r.seen.recomputed = r.recompute(inputs, params) && root == *p.InputRoot
	}
}

// supposed makes the check Result with an acceptance for each input that is not known.
func (r *Report) supposed(inputs []map[string]any, params map[string]any) {
	r.seen.supposed = r.recompute(inputs, params)
}

func (r *Report) recompute(inputs []map[string]any, params map[string]any) bool {
	wrong := resultProblem(r.of.Payload, inputs, params)
	r.add(Result, wrong, "byte for byte as recomputed")
	return wrong == ""
}

// falselyRejected returns a party that a VOID names as one that rejected, although its open input does not
// reject, or -1. A VOID has an input_root only after a rejection.
func (r *Report) falselyRejected(known [][]timelock.Opening) int {
	p := r.of.Payload
	a, _ := algorithm.Lookup(p.Algorithm)
	if p.Outcome == certificate.Void && a.MayReject() && (p.InputRoot != nil || slices.Contains(p.Properties, certificate.Rejected)) {
		for _, i := range p.VoidFlakers {
			if r.seen.opened[i] && !a.Rejects(known[i][0].Input) {
				return i
			}
		}
	}
	return -1
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
