package algorithm

import (
	"fmt"
	"maps"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
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
	compute:  computeShapley,
	Accepted: map[string]any{"accept": true},
	rejects:  func(input map[string]any) bool { return input["accept"] == false },
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

type game struct {
	worth []int64  // worth[c] is the worth of coalition c; bit i of c is set if party i is a member
	given []bool   // given[c] reports whether the params contain the worth of coalition c
	names []string // names[i] is the name of party i in the keys, either its label or its index
}

// readGame reads algorithm_params.coalition_values. Either all keys name parties by label, or
// all keys name parties by index. readGame tries labels and indexes, and chooses the form in
// which fewer keys contain an unknown name. On a tie, readGame chooses labels.
func readGame(labels []string, params map[string]any) (*game, error) {
	m := canon.MembersOf(params, "algorithm_params.")
	values := m.Object("coalition_values", "an object that maps coalition keys to non-negative integers")
	if m.Err() != nil {
		return nil, m.Err()
	}
	keys := slices.Sorted(maps.Keys(values)) // sorted, so that equal params always return the same error
	g := &game{worth: make([]int64, 1<<len(labels)), given: make([]bool, 1<<len(labels)), names: labels}
	if indexes := indexNames(len(labels)); misfits(keys, indexes) < misfits(keys, labels) {
		g.names = indexes
	}
	for _, key := range keys {
		members, unknown := g.members(key)
		if unknown || key != g.key(members) {
			return nil, g.keyError(key)
		}
		worth, ok := values[key].(int64)
		if !ok || worth < 0 || worth > canon.MaxInt {
			return nil, fmt.Errorf("algorithm_params.coalition_values[%.200q] must be an integer of 0 to %d", key, canon.MaxInt)
		}
		g.worth[members], g.given[members] = worth, true
	}
	return g, nil
}

func indexNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names
}

// misfits returns how many coalition keys contain a name that is not in names.
func misfits(keys, names []string) int {
	g := game{names: names}
	n := 0
	for _, key := range keys {
		if _, unknown := g.members(key); unknown {
			n++
		}
	}
	return n
}

func (g *game) members(key string) (members int, unknown bool) {
	for name := range strings.SplitSeq(key, ",") {
		i := slices.Index(g.names, name)
		if i < 0 {
			return members, true
		}
		members |= 1 << i
	}
	return members, false
}

// key returns the key of a coalition (SPEC 1): the sorted names of its members, joined by
// commas.
func (g *game) key(members int) string {
	var names []string
	for i, name := range g.names {
		if members>>i&1 == 1 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// keyError returns an error that says how to correct a key. If every name in the key is known,
// the error shows the correct key. Blanks around a name are a common mistake, so keyError also
// looks up the name without them.
func (g *game) keyError(key string) error {
	if key == "" {
		return fmt.Errorf("algorithm_params.coalition_values has an empty key: the empty coalition is worth 0 and needs no key; remove this key")
	}
	known, stranger := 0, ""
	for name := range strings.SplitSeq(key, ",") {
		members, unknown := g.members(name)
		if trimmed := strings.TrimSpace(name); unknown && trimmed != "" {
			members, unknown = g.members(trimmed)
		}
		if unknown && name != "" && stranger == "" {
			stranger = name
		}
		known |= members
	}
	if known != 0 && stranger == "" {
		return fmt.Errorf("algorithm_params.coalition_values: the key %.200q must be %q: sort the members by their UTF-8 bytes, name each member once, and join the names by ',' without blanks",
			key, g.key(known))
	}
	return fmt.Errorf("algorithm_params.coalition_values: the key %.200q names %.200q, which is not a party; the key of all parties is %q, and the key of a smaller coalition names only its members",
		key, stranger, g.key(len(g.worth)-1))
}

func (g *game) warnings() []string {
	var warnings, missing []string
	all := len(g.worth) - 1
	for members := 1; members < all; members++ {
		if !g.given[members] {
			missing = append(missing, g.key(members))
		}
	}
	if len(missing) > 0 {
		warnings = append(warnings, fmt.Sprintf("algorithm_params.coalition_values leaves out %d coalition(s), which count 0: %s", len(missing), problem.List(missing, "%.200q", ", ")))
	}
	if !g.given[all] {
		warnings = append(warnings, fmt.Sprintf("algorithm_params.coalition_values: the coalition of all parties (%q) is left out and counts 0, so there is nothing to share", g.key(all)))
	}
	if w := g.ambiguity(); w != "" {
		warnings = append(warnings, w)
	}
	return warnings
}

// ambiguity returns a warning if a label equals the index of another party, or "". The keys
// are read as labels, but their author may have meant indexes.
func (g *game) ambiguity() string {
	n := len(g.names)
	indexes := indexNames(n)
	for i, name := range g.names {
		if j := slices.Index(indexes, name); j >= 0 && j != i {
			return fmt.Sprintf("algorithm_params.coalition_values: keys are read as labels, so %q is party %d, not party %d", name, i, j)
		}
	}
	return ""
}
