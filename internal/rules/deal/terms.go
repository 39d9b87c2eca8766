package deal

import (
	"fmt"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

// Longest is the maximum number of seconds from the creation of a deal to its reveal deadline, and
// from the reveal deadline to the beacon round.
const Longest = 366 * 24 * 3600

// Terms are what the initiator declares about a deal. They never change. Times are unix seconds.
type Terms struct {
	Algorithm      string
	Params         []byte // algorithm_params in RFC 8785 form, with the members that the algorithm does not know
	Mode           string // sealed or open
	Retention      string // standard or purge
	Labels         []string
	SeatKeys       []*string // by party; nil element: no declared key; nil slice: no party has one
	CommitDeadline int64
	RevealDeadline int64
	ChainHash      *string // like BeaconRound and RoundTime, nil unless the algorithm is random.v1
	BeaconRound    *int64
	RoundTime      *int64 // when the beacon round is due
}

// SeatKey returns the declared public key of a party, or nil.
func (t *Terms) SeatKey(party int) *string {
	if t.SeatKeys == nil {
		return nil
	}
	return t.SeatKeys[party]
}

// Random reports whether the deal waits for a beacon round after the reveals (random.v1).
func (t *Terms) Random() bool { return t.RoundTime != nil }

// Canonical returns the declaration: the terms in the RFC 8785 form whose digest seat keys and
// certificates name (attestation.Digest). It returns an error if Params are malformed.
func (t *Terms) Canonical() ([]byte, error) {
	params, err := canon.ParseObject(t.Params)
	if err != nil {
		return nil, fmt.Errorf("algorithm_params: %w", err)
	}
	labels, keys := make([]any, len(t.Labels)), make([]any, len(t.Labels))
	for i, label := range t.Labels {
		labels[i] = label
		if key := t.SeatKey(i); key != nil {
			keys[i] = *key
		}
	}
	var chain any
	if t.ChainHash != nil {
		chain = *t.ChainHash
	}
	return canon.Encode(map[string]any{
		"algorithm": t.Algorithm, "algorithm_params": params, "beacon_chain": chain, "commit_deadline": t.CommitDeadline, "mode": t.Mode,
		"party_keys": keys, "party_labels": labels, "retention": t.Retention, "reveal_deadline": t.RevealDeadline,
	}), nil
}
