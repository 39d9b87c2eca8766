package algorithm

import "github.com/fairpact/fairpact/internal/rules/canon"

// maxV1 is an algorithm for tests only. The folder around this file has all that it adds.
var maxV1 = &Algorithm{
	ID:         "max.v1",
	Name:       "Largest bid: the lower party index wins a tie",
	Title:      "Sell to the highest bid",
	Purpose:    "who bids most for one thing",
	Ready:      "your bid",
	MinParties: 2,
	MaxParties: 5,
	MaxInput:   1 << 10,
	Properties: []string{"largest-bid"},
	checkParams: func(_ []string, params map[string]any) ([]string, error) {
		m := canon.MembersOf(params, "algorithm_params.")
		m.Text("thing", "a string that says what the bids are for")
		return nil, m.Err()
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
	m := canon.MembersOf(input, "input.")
	bid := m.Integer("bid", "a non-negative integer")
	if bid < 0 || bid > canon.MaxInt {
		m.Fail("input.bid must be an integer of 0 to %d", canon.MaxInt)
	}
	return bid, m.Err()
}
