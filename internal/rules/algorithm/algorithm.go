// Package algorithm contains the published algorithms, their catalogue and their test vectors.
//
// The package is pure, so anyone can recompute a result. Arithmetic is exact. A fraction is a string in
// lowest terms ("5/7", "-3/2", "1"), because many JSON readers round integers above 2^53. Params and
// inputs consist of the types that canon.Parse returns.
package algorithm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// SPEC 9.4: an id includes its version, and what a published id computes MUST never change.
const (
	Split   = "split.v1"
	Random  = "random.v1"
	Shapley = "shapley.v1"
)

// ErrRejected is returned by Compute if a party rejected the deal, which is then VOID.
var ErrRejected = errors.New("a party rejected the deal, so there is no result")

// Algorithm is one published algorithm: its description and its rules.
type Algorithm struct {
	ID         string
	Name       string
	Title      string // what a person does with it; the form for a new deal shows it
	Purpose    string // what the algorithm decides; invitations and published texts contain it
	Ready      string // what a person needs to take part; invitations contain it
	MinParties int
	MaxParties int
	MaxInput   int // bytes of a party input in its RFC 8785 form, whatever the params

	// InputSize describes InputLimit in texts about the algorithm. "": InputLimit is MaxInput.
	InputSize string

	// InputForm describes a party input in texts about a deal, with placeholders for what depends on the
	// params. "": these texts show Input.Example, which then fits every deal.
	InputForm string

	// NeedsBeacon reports whether the result depends on the beacon round that the deal names
	// in algorithm_params.beacon_round. The result has the round in the member "beacon".
	NeedsBeacon bool
	// Accepted is the input of a party that did not reject; nil if no input can reject the deal. A
	// COMPUTED deal then has this input from each party.
	Accepted map[string]any
	// Properties are added to the member `properties` of COMPUTED certificates.
	Properties []string

	Params, Input, Result Schema   // of schemas/<ID>.json
	Vectors               []Vector // of vectors/<ID>.json

	uniqueLabels bool
	checkParams  func(labels []string, params map[string]any) (warnings []string, err error)
	checkInput   func(labels []string, params, input map[string]any) error
	inputLimit   func(params map[string]any) int                  // nil: MaxInput
	resultLimit  func(labels []string, params map[string]any) int // nil: a KiB, and 128 bytes for each party besides its label
	warnInput    func(params, input map[string]any) string        // nil if the algorithm has no input warnings
	compute      func(labels []string, params map[string]any, inputs []map[string]any, b *Beacon) (result any, err error)
	rejects      func(input map[string]any) bool                      // nil if no input can make the deal VOID
	redraw       func(labels []string, result []byte) ([]byte, error) // nil if Redraw is not supported
}

// Beacon is a round of a public randomness beacon. The strings are lower-case hex.
type Beacon struct {
	ChainHash  string `json:"chain_hash"` // 64 digits
	Round      int64  `json:"round"`
	Randomness string `json:"randomness"` // 64 digits
	Signature  string `json:"signature"`
}

const maxParams = 1 << 20 // bytes of algorithm_params in their RFC 8785 form

// CheckParams checks the labels and params of a new deal. It warns about values that are probably mistakes.
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

// InputLimit returns the maximum size in bytes of a party input in its RFC 8785 form, in a deal with
// these params. Every input without unknown members fits.
func (a *Algorithm) InputLimit(params map[string]any) int {
	if a.inputLimit == nil {
		return a.MaxInput
	}
	return min(a.MaxInput, a.inputLimit(params))
}

// ResultLimit returns the maximum size in bytes of the result in its RFC 8785 form, of a deal with these labels and
// params, whatever the inputs. labels and params MUST be valid.
func (a *Algorithm) ResultLimit(labels []string, params map[string]any) int {
	if a.resultLimit != nil {
		return a.resultLimit(labels, params)
	}
	most := 1 << 10
	for _, label := range labels {
		most += len(canon.Encode(label)) + 128
	}
	return most
}

// CheckInput checks that an input can be used in a deal whose inputs have at most `most` bytes in their
// RFC 8785 form. It ignores unknown members, because a party cannot correct a committed input. The error
// MUST NOT contain any part of the input.
func (a *Algorithm) CheckInput(labels []string, params, input map[string]any, most int) error {
	if n := len(canon.Encode(input)); n > most {
		return fmt.Errorf("the input has %d bytes in its RFC 8785 form; %s takes at most %d in this deal", n, a.ID, most)
	}
	return a.checkInput(labels, params, input)
}

// InputWarning returns a warning about an accepted input that is probably a mistake, or "". The
// warning discloses facts about the input: show it only to the party that reveals the input.
func (a *Algorithm) InputWarning(params, input map[string]any) string {
	if a.warnInput == nil {
		return ""
	}
	return a.warnInput(params, input)
}

// Known returns algorithm_params without unknown members, which no deal stores.
func (a *Algorithm) Known(params map[string]any) map[string]any { return known(a.Params, params) }

// KnownInput returns a party input without unknown members.
func (a *Algorithm) KnownInput(input map[string]any) map[string]any { return known(a.Input, input) }

func known(s Schema, members map[string]any) map[string]any {
	known := make(map[string]any, len(s.Members))
	for name := range s.Members {
		if v, ok := members[name]; ok {
			known[name] = v
		}
	}
	return known
}

// Rejects reports whether an accepted input makes the deal VOID.
func (a *Algorithm) Rejects(input map[string]any) bool {
	return a.rejects != nil && a.rejects(input)
}

// MayReject reports whether an input of the algorithm can make a deal VOID.
func (a *Algorithm) MayReject() bool { return a.rejects != nil }

// Redraws reports whether the algorithm supports Redraw.
func (a *Algorithm) Redraws() bool { return a.redraw != nil }

// Redraw recomputes a result without inputs, from the beacon round and the nonce digest in the result. It
// returns the RFC 8785 bytes. It does not check that the beacon signed the round.
func (a *Algorithm) Redraw(labels []string, result []byte) ([]byte, error) {
	if err := CheckLabels(a, labels); err != nil {
		return nil, err
	}
	return a.redraw(labels, result)
}

// Compute returns the RFC 8785 bytes of the deal's result, or ErrRejected. inputs are in the order of the
// parties. b is the beacon round that the deal names, if the algorithm needs one. An error about an input
// names the party.
func (a *Algorithm) Compute(labels []string, params map[string]any, inputs []map[string]any, b *Beacon) ([]byte, error) {
	if err := CheckLabels(a, labels); err != nil {
		return nil, err
	}
	if len(inputs) != len(labels) {
		return nil, fmt.Errorf("%d inputs for %d parties: give one input for each party", len(inputs), len(labels))
	}
	result, err := a.compute(labels, params, inputs, b)
	if err != nil {
		return nil, err
	}
	return canon.Marshal(result)
}

func ofParty(i int, err error) error {
	return fmt.Errorf("party %d: %w", i, err)
}

const maxLabelBytes = 200

// CheckLabels checks the number of labels and each label.
func CheckLabels(a *Algorithm, labels []string) error {
	// SPEC 8: each algorithm has a minimum and a maximum number of parties.
	if n := len(labels); n < a.MinParties || n > a.MaxParties {
		return fmt.Errorf("party_labels has %d items: %s takes %d to %d parties; give one label for each party", n, a.ID, a.MinParties, a.MaxParties)
	}
	first := make(map[string]int, len(labels))
	for i, label := range labels {
		switch {
		case label == "":
			return fmt.Errorf("party_labels[%d] is empty: give each party a name", i)
		case len(label) > maxLabelBytes:
			return fmt.Errorf("party_labels[%d] has %d bytes: shorten the label to at most %d bytes", i, len(label), maxLabelBytes)
		case strings.ContainsFunc(label, unicode.IsControl):
			return fmt.Errorf("party_labels[%d] holds a control character: remove the character", i)
		}
		if !a.uniqueLabels {
			continue
		}
		if strings.Contains(label, ",") {
			return fmt.Errorf("party_labels[%d] holds a comma, but %s separates the labels in a coalition key with commas: remove the comma", i, a.ID)
		}
		if j, twice := first[label]; twice {
			return fmt.Errorf("party_labels[%d] is the same as party_labels[%d], but %s names the members of a coalition by label: change one of the two labels", i, j, a.ID)
		}
		first[label] = i
	}
	return nil
}

func unknownMembers(a *Algorithm, params map[string]any) []string {
	unknown := slices.Sorted(maps.Keys(params))
	unknown = slices.DeleteFunc(unknown, func(name string) bool { _, known := a.Params.Members[name]; return known })
	if len(unknown) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("algorithm_params has unknown members, which %s ignores: %s", a.ID, problem.List(unknown, "%.200q", ", "))}
}
