// Package algorithm holds the published algorithms: what they take, what they
// refuse, what they compute, the catalogue and the published vectors. An
// algorithm describes itself: adding one is its file, its schemas, its vectors
// and its line in the catalogue. The package is pure: the same arguments give the same bytes for ever, on any machine, so
// that anyone can recompute a result. Arithmetic is exact; a fraction is a
// string in lowest terms ("5/7", "-3/2", "1"), because JSON numbers past 2^53
// do not survive.
//
// Trees are those of package canon: nil, bool, int64, string, []any,
// map[string]any.
package algorithm

import (
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/canon"
)

// The ids of the algorithms. SPEC 9.4: an id carries its version; what a
// published id computes MUST never change.
const (
	Split   = "split.v1"
	Random  = "random.v1"
	Shapley = "shapley.v1"
)

// ErrRejected is what Compute answers where a party rejected: such a deal is
// VOID and has no result.
var ErrRejected = errors.New("a party rejected, so there is no result")

// Algorithm is an entry of the catalogue with the rules behind it.
type Algorithm struct {
	ID         string
	Name       string
	Purpose    string // what it settles, in the words of the pages for agents
	MinParties int    // inclusive
	MaxParties int    // inclusive
	MaxInput   int    // bytes of a party input in its RFC 8785 form

	// NeedsBeacon says that the result is computed with a beacon round: the deal
	// declares it as algorithm_params.beacon_round and waits for it after the
	// reveals, and the result shows it as its member beacon.
	NeedsBeacon bool
	// Properties are the guarantee flags that a COMPUTED certificate has because
	// of the algorithm.
	Properties []string

	// Params, Input and Result come from schemas/<ID>.json.
	Params, Input, Result Schema

	uniqueLabels bool
	checkParams  func(labels []string, params map[string]any) (warnings []string, err error)
	checkInput   func(labels []string, params, input map[string]any) error
	compute      func(labels []string, params map[string]any, inputs []map[string]any, b *Beacon) (result any, err error)
	rejects      func(input map[string]any) bool                      // nil where no input rejects
	redraw       func(labels []string, result []byte) ([]byte, error) // nil where only the inputs give the result
}

// Beacon is a round of a public randomness beacon, its hex in lower case. It is
// part of the result of random.v1.
type Beacon struct {
	ChainHash  string `json:"chain_hash"` // 32 bytes
	Round      int64  `json:"round"`
	Randomness string `json:"randomness"` // 32 bytes
	Signature  string `json:"signature"`
}

const maxParams = 1 << 20 // bytes of algorithm_params in their RFC 8785 form

// CheckParams reports whether a deal with these labels and algorithm_params can
// be created, and warns of what is legal but odd. Params are declared in the
// open and can be corrected, so the check is strict. It includes CheckLabels. The
// error and the warnings say what is wrong with which member and what to send.
func (a *Algorithm) CheckParams(labels []string, params map[string]any) (warnings []string, err error) {
	if err := CheckLabels(a, labels); err != nil {
		return nil, err
	}
	warnings, err = a.checkParams(labels, params)
	if err != nil {
		return nil, err
	}
	if n := len(canon.Encode(params)); n > maxParams {
		return nil, fmt.Errorf("algorithm_params has %d bytes in its RFC 8785 form; send at most %d", n, maxParams)
	}
	return append(warnings, unknownMembers(a, params)...), nil
}

// CheckInput reports whether a party's input can be computed with. A committed
// input cannot be corrected, so whatever has only one meaning is taken; members
// that the algorithm does not know are ignored. The error names the rule and the
// member and MUST hold nothing of the input itself.
func (a *Algorithm) CheckInput(labels []string, params, input map[string]any) error {
	if n := len(canon.Encode(input)); n > a.MaxInput {
		return fmt.Errorf("the input has %d bytes in its RFC 8785 form; %s takes at most %d", n, a.ID, a.MaxInput)
	}
	return a.checkInput(labels, params, input)
}

// Known is algorithm_params without the members that mean nothing.
func (a *Algorithm) Known(params map[string]any) map[string]any {
	known := make(map[string]any, len(a.Params.Members))
	for name := range a.Params.Members {
		if v, ok := params[name]; ok {
			known[name] = v
		}
	}
	return known
}

// Rejects reports whether an input that CheckInput takes makes the deal VOID.
func (a *Algorithm) Rejects(input map[string]any) bool {
	return a.rejects != nil && a.rejects(input)
}

// MayReject reports whether an input of the algorithm can make a deal VOID.
func (a *Algorithm) MayReject() bool { return a.rejects != nil }

// Redraws reports whether what a certificate shows of a result is enough to
// compute it again.
func (a *Algorithm) Redraws() bool { return a.redraw != nil }

// Redraw returns the RFC 8785 bytes of the result that follows from what a
// certificate shows of it. It is how a draw is checked by those who were never
// given the inputs.
func (a *Algorithm) Redraw(labels []string, result []byte) ([]byte, error) {
	if err := CheckLabels(a, labels); err != nil {
		return nil, err
	}
	return a.redraw(labels, result)
}

// Compute gives the RFC 8785 bytes of the deal's result. inputs are in the
// order of the parties; b is the pinned round where the algorithm needs one and is
// not looked at otherwise. All is checked again, as CheckParams and CheckInput do but for null valuations, so that a
// recomputation needs no trust in where its arguments came from; the errors are
// theirs, prefixed with the party, or ErrRejected.
func (a *Algorithm) Compute(labels []string, params map[string]any, inputs []map[string]any, b *Beacon) ([]byte, error) {
	if err := CheckLabels(a, labels); err != nil {
		return nil, err
	}
	if len(inputs) != len(labels) {
		return nil, fmt.Errorf("%d inputs for %d parties: a result needs the input of each", len(inputs), len(labels))
	}
	result, err := a.compute(labels, params, inputs, b)
	if err != nil {
		return nil, err
	}
	return canon.Marshal(result)
}

// ofParty says which party's input an error is about.
func ofParty(i int, err error) error {
	return fmt.Errorf("party %d: %w", i, err)
}
