package algorithm

import (
	"errors"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

// maxV1 is an algorithm for tests only. It shows that a new algorithm needs only a file, schemas,
// vectors and its name in the catalogue.
var maxV1 = &Algorithm{
	ID:         "max.v1",
	Name:       "Largest bid: the lower party index wins a tie",
	Purpose:    "who bids most for one thing",
	Ready:      "your bid",
	MinParties: 2,
	MaxParties: 5,
	MaxInput:   1 << 10,
	Properties: []string{"largest-bid"},
	checkParams: func(_ []string, params map[string]any) ([]string, error) {
		_, err := member[string](params, "algorithm_params", "thing", "a string that says what the bids are for")
		return nil, err
	},
	checkInput: func(_ []string, _, input map[string]any) error {
		_, err := readBid(input)
		return err
	},
	compute: func(labels []string, _ map[string]any, inputs []map[string]any, _ *Beacon) (any, error) {
		best := map[string]any{}
		for i, input := range inputs {
			bid, err := readBid(input)
			if err != nil {
				return nil, ofParty(i, err)
			}
			if most, found := best["bid"].(int64); !found || bid > most {
				best = map[string]any{"winner": int64(i), "label": labels[i], "bid": bid}
			}
		}
		return best, nil
	},
}

func readBid(input map[string]any) (int64, error) {
	bid, err := member[int64](input, "input", "bid", "a non-negative integer")
	if err == nil && (bid < 0 || bid > canon.MaxInt) {
		err = errors.New("input.bid must be an integer of 0 to 9007199254740991")
	}
	return bid, err
}
