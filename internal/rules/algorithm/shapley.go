package algorithm

import (
	"math/big"
	"math/bits"
	"slices"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

var shapleyV1 = &Algorithm{
	ID:           Shapley,
	Name:         "Shapley value shares: split by marginal contribution",
	Title:        "Share a joint gain",
	Purpose:      "who is owed how much of a joint gain",
	Ready:        "your decision to accept or reject the declared terms, which the page shows",
	MinParties:   2,
	MaxParties:   8,
	uniqueLabels: true,
	MaxInput:     4 << 10,
	checkParams: func(labels []string, params map[string]any) ([]string, error) {
		g, err := readGame(labels, params)
		if err != nil {
			return nil, err
		}
		return g.warnings(), nil
	},
	checkInput: func(_ []string, _, input map[string]any) error {
		_, err := readAccept(input)
		return err
	},
	compute: computeShapley,
	rejects: func(input map[string]any) bool { return input["accept"] == false },
}

type shapleyResult struct {
	Total  int64          `json:"total"` // worth of the coalition of all parties
	Shares []shapleyShare `json:"shares"`
}

type shapleyShare struct {
	Party  int    `json:"party"`
	Label  string `json:"label"`
	Share  string `json:"share"`  // exact, a fraction in lowest terms
	Payout int64  `json:"payout"` // share rounded to an integer; the payouts add up to total
}

func readAccept(input map[string]any) (bool, error) {
	m := canon.MembersOf(input, "input.")
	return m.Flag("accept", "true, or false to reject"), m.Err()
}

func computeShapley(labels []string, params map[string]any, inputs []map[string]any, _ *Beacon) (any, error) {
	g, err := readGame(labels, params)
	if err != nil {
		return nil, err
	}
	rejected := false
	for i, input := range inputs {
		accept, err := readAccept(input)
		if err != nil {
			return nil, ofParty(i, err)
		}
		rejected = rejected || !accept
	}
	if rejected {
		return nil, ErrRejected
	}
	numerators, denominator := shapleyValues(g.worth, len(labels))
	total := g.worth[len(g.worth)-1]
	result := shapleyResult{Total: total}
	payouts := largestRemainder(numerators, denominator, total)
	for i, n := range numerators {
		result.Shares = append(result.Shares, shapleyShare{
			Party:  i,
			Label:  labels[i],
			Share:  new(big.Rat).SetFrac(n, denominator).RatString(),
			Payout: payouts[i],
		})
	}
	return result, nil
}

// shapleyValues returns the Shapley value of each of n players as a numerator over n!
// (L. S. Shapley, A Value for n-Person Games, 1953). The numerator is the sum of
// |S|!·(n−1−|S|)!·(worth(S ∪ player) − worth(S)) over the coalitions S without the
// player. worth[s] is the worth of the coalition with the bit mask s.
func shapleyValues(worth []int64, n int) (numerators []*big.Int, denominator *big.Int) {
	factorial := func(k int) *big.Int { return new(big.Int).MulRange(1, int64(k)) }
	weights := make([]*big.Int, n)
	for s := range weights {
		weights[s] = new(big.Int).Mul(factorial(s), factorial(n-1-s))
	}
	for i := range n {
		sum := new(big.Int)
		for s := range worth {
			if s>>i&1 == 1 {
				continue
			}
			// Each worth is from 0 to 2^53−1, so the difference fits into an int64.
			marginal := big.NewInt(worth[s|1<<i] - worth[s])
			sum.Add(sum, marginal.Mul(marginal, weights[bits.OnesCount(uint(s))]))
		}
		numerators = append(numerators, sum)
	}
	return numerators, factorial(n)
}

// largestRemainder rounds the shares numerators[i]/denominator to integers that add up to
// total. It rounds each share down, then adds 1 to the shares with the largest
// remainders. Of equal remainders, the lower index comes first.
func largestRemainder(numerators []*big.Int, denominator *big.Int, total int64) []int64 {
	payouts := make([]int64, len(numerators))
	remainders := make([]*big.Int, len(numerators))
	order := make([]int, len(numerators))
	left := total
	for i, n := range numerators {
		// DivMod rounds toward −∞, because the denominator is positive.
		floor, remainder := new(big.Int).DivMod(n, denominator, new(big.Int))
		payouts[i], remainders[i], order[i] = floor.Int64(), remainder, i
		left -= payouts[i]
	}
	slices.SortStableFunc(order, func(i, j int) int { return remainders[j].Cmp(remainders[i]) })
	for _, i := range order[:left] {
		payouts[i]++
	}
	return payouts
}
