package algorithm

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	maxItems        = 1000
	maxItemsParties = 4096 // items × parties
	maxItemBytes    = 200

	spareInput = 4 << 10 // bytes of an input for what is not a valuation, unknown members included
	valueBytes = 18      // of a valuation after its item: a colon, 16 digits, a comma
)

var splitV1 = &Algorithm{
	ID:         Split,
	Name:       "Fair division: adjusted winner for 2 parties, proportional for more",
	Title:      "Divide things",
	Purpose:    "who gets what, based on how much each party values each item",
	Ready:      "for each thing, how much you want it, in points",
	MinParties: 2,
	MaxParties: 16,
	MaxInput:   512 << 10,
	InputSize:  fmt.Sprintf("%d, plus for each item of the deal %d and the bytes of its identifier as a canonical JSON string", spareInput, valueBytes),
	InputForm:  `{"valuations":{"<item>":<integer>, ...}} with each item of this deal's algorithm_params.items`,
	checkParams: func(labels []string, params map[string]any) ([]string, error) {
		_, err := readItems(labels, params)
		return nil, err
	},
	checkInput: func(labels []string, params, input map[string]any) error {
		items, err := readItems(labels, params)
		if err != nil {
			return err
		}
		_, err = readValuations(items, input)
		return err
	},
	inputLimit: func(params map[string]any) int {
		most := spareInput
		items, _ := params["items"].([]any)
		for _, item := range items {
			most += len(canon.Encode(item)) + valueBytes
		}
		return most
	},
	resultLimit: splitLimit,
	warnInput: func(params, input map[string]any) string {
		valuations, _ := input["valuations"].(map[string]any)
		items, _ := params["items"].([]any)
		var leftOut []string
		valued := false
		for _, v := range items {
			item, _ := v.(string)
			value, there := valuations[item]
			if !there {
				leftOut = append(leftOut, item)
			}
			valued = valued || there && value != int64(0)
		}
		switch {
		case !valued:
			return "all items count 0 for you, so you get nothing that another party values"
		case len(leftOut) > 0:
			return "input.valuations leaves out " + problem.List(leftOut, "%q", ", ") + "; an item that you leave out counts 0 for you"
		}
		return ""
	},
	compute: computeSplit,
}

type splitResult struct {
	Method string       `json:"method"` // adjusted_winner or proportional
	Shares []splitShare `json:"shares"`
}

type splitShare struct {
	Party    int         `json:"party"`
	Label    string      `json:"label"`
	Items    []splitItem `json:"items"`     // in the order of the params, without shares of 0
	ValuePPB int64       `json:"value_ppb"` // what these items are worth to the party, in billionths of the party's total
}

type splitItem struct {
	Item  string `json:"item"`
	Share string `json:"share"` // exact part of the item, above 0 and at most 1
}

func readItems(labels []string, params map[string]any) ([]string, error) {
	m := canon.MembersOf(params, "algorithm_params.")
	items := m.Texts("items", "an array of item identifiers (strings)")
	if m.Err() != nil {
		return nil, m.Err()
	}
	if len(items) < 1 || len(items) > maxItems {
		return nil, fmt.Errorf("algorithm_params.items has %d items: give 1 to %d", len(items), maxItems)
	}
	if n := len(items) * len(labels); n > maxItemsParties {
		return nil, fmt.Errorf("algorithm_params.items has %d items for %d parties, and items × parties is %d: use fewer items or parties, so that this product is at most %d",
			len(items), len(labels), n, maxItemsParties)
	}
	first := make(map[string]int, len(items))
	for i, item := range items {
		switch {
		case item == "":
			return nil, fmt.Errorf("algorithm_params.items[%d] is empty: give each item a name", i)
		case len(item) > maxItemBytes:
			return nil, fmt.Errorf("algorithm_params.items[%d] has %d bytes: shorten the item identifier to at most %d bytes", i, len(item), maxItemBytes)
		}
		if j, twice := first[item]; twice {
			return nil, fmt.Errorf("algorithm_params.items[%d] is the same as items[%d]: list each item once", i, j)
		}
		first[item] = i
	}
	return items, nil
}

// readValuations returns a party's values in the order of the items. Its errors may
// contain items of the params, but MUST NOT contain any part of the input.
func readValuations(items []string, input map[string]any) ([]int64, error) {
	m := canon.MembersOf(input, "input.")
	given := m.Object("valuations", "an object that maps item identifiers to non-negative integers")
	if m.Err() != nil {
		return nil, m.Err()
	}
	values := make([]int64, len(items))
	known := 0
	for i, item := range items {
		v, there := given[item]
		if !there {
			continue
		}
		known++
		if v == nil {
			return nil, fmt.Errorf("input.valuations: the value of item %q is null; send an integer of 0 to %d, or leave the item out to value it at 0", item, canon.MaxInt)
		}
		n, ok := v.(int64)
		if !ok || n < 0 || n > canon.MaxInt {
			return nil, fmt.Errorf("input.valuations: the value of item %q must be an integer of 0 to %d", item, canon.MaxInt)
		}
		values[i] = n
	}
	if unknown := len(given) - known; unknown > 0 {
		return nil, fmt.Errorf("input.valuations has %d member(s) that are not items of this deal; the items are %s", unknown, problem.List(items, "%q", ", "))
	}
	return values, nil
}

// splitLimit returns Algorithm.ResultLimit. A total has the digits of the largest value and of the number of items.
// For three or more parties, numerator and denominator of a share have at most the digits of all totals together, and
// of the number of parties. For two, only one item is split, by parts of a common total.
func splitLimit(labels []string, params map[string]any) int {
	items, _ := params["items"].([]any)
	digits := 16 + len(strconv.Itoa(len(items)))
	share, once := 2*(digits*len(labels)+2)+len("/"), 0
	if len(labels) == 2 {
		share, once = len("1/2"), 2*share
	}
	most := len(`{"method":"adjusted_winner","shares":[]}`) + once
	for i, label := range labels {
		most += len(canon.Encode(label)) + len(strconv.Itoa(i)) + len(`{"items":[],"label":,"party":,"value_ppb":1000000000},`)
	}
	for _, item := range items {
		most += len(labels) * (len(canon.Encode(item)) + share + len(`{"item":,"share":""},`))
	}
	return most
}

func computeSplit(labels []string, params map[string]any, inputs []map[string]any, _ *Beacon) (any, error) {
	items, err := readItems(labels, params)
	if err != nil {
		return nil, err
	}
	d := division{values: make([][]*big.Int, len(labels)), totals: make([]*big.Int, len(labels)), items: len(items)}
	for p, input := range inputs {
		values, err := readValuations(items, input)
		if err != nil {
			return nil, ofParty(p, err)
		}
		d.totals[p] = new(big.Int)
		for _, v := range values {
			n := big.NewInt(v)
			d.values[p] = append(d.values[p], n)
			d.totals[p].Add(d.totals[p], n)
		}
	}
	// SPEC 1: adjusted winner for 2 parties, proportional for n parties.
	result := splitResult{Method: "proportional"}
	shares := d.proportional
	if len(labels) == 2 {
		result.Method, shares = "adjusted_winner", d.adjustedWinner
	}
	for p, parts := range shares() {
		s := splitShare{Party: p, Label: labels[p], Items: []splitItem{}, ValuePPB: d.valuePPB(p, parts)}
		for i, part := range parts {
			if part.Sign() > 0 {
				s.Items = append(s.Items, splitItem{Item: items[i], Share: part.RatString()})
			}
		}
		result.Shares = append(result.Shares, s)
	}
	return result, nil
}

type division struct {
	values [][]*big.Int // values[party][item]
	totals []*big.Int   // totals[party] is the sum of values[party]
	items  int
}

func (d division) valued(item int) bool {
	return slices.ContainsFunc(d.values, func(of []*big.Int) bool { return of[item].Sign() > 0 })
}

// equalShares returns 1/n of every item for each of the n parties. adjustedWinner and
// proportional then replace the shares of valued items.
func (d division) equalShares() [][]*big.Rat {
	shares := make([][]*big.Rat, len(d.values))
	for p := range shares {
		for range d.items {
			shares[p] = append(shares[p], big.NewRat(1, int64(len(d.values))))
		}
	}
	return shares
}

// valuePPB returns what a party's parts of the items are worth to that party, in billionths
// of the party's total. It adds up floor(10^18 × part × value ÷ total) over the items,
// divides the sum by 10^9 and rounds down. If the total is 0, valuePPB returns 0.
func (d division) valuePPB(party int, parts []*big.Rat) int64 {
	if d.totals[party].Sign() == 0 {
		return 0
	}
	const quintillion, billion = 1_000_000_000_000_000_000, 1_000_000_000
	sum := new(big.Int)
	for i, part := range parts {
		n := new(big.Int).Mul(part.Num(), d.values[party][i])
		n.Mul(n, big.NewInt(quintillion))
		sum.Add(sum, n.Quo(n, new(big.Int).Mul(part.Denom(), d.totals[party])))
	}
	return sum.Quo(sum, big.NewInt(billion)).Int64()
}

// adjustedWinner divides the items between two parties by the method of S. J. Brams and
// A. D. Taylor, Fair Division, Cambridge 1996, chapter 4. The method scales both valuations to
// a common total. It orders the valued items by the ratio of party 0's scaled value to party
// 1's, largest first. The ratio is infinite if party 1's value is 0. Items with equal
// ratios stay in the order of the params. Party 0 takes items in this order until both
// parties get the same part of their own totals. At most one valued item is split.
func (d division) adjustedWinner() [][]*big.Rat {
	shares := d.equalShares()
	give := func(item int, part *big.Rat) {
		shares[0][item] = part
		shares[1][item] = new(big.Rat).Sub(big.NewRat(1, 1), part)
	}
	one, zero := big.NewRat(1, 1), new(big.Rat)

	var order []int
	for i := range d.items {
		if d.valued(i) {
			order = append(order, i)
		}
	}
	// A party with a total of 0 gets no valued item, because its values cannot be scaled.
	if d.totals[0].Sign() == 0 || d.totals[1].Sign() == 0 {
		for _, i := range order {
			part := one
			if d.totals[0].Sign() == 0 {
				part = zero
			}
			give(i, part)
		}
		return shares
	}

	// a[i] and b[i] are the values of item i for party 0 and party 1, scaled to the common
	// total totals[0]·totals[1].
	a, b := make([]*big.Int, d.items), make([]*big.Int, d.items)
	for i := range d.items {
		a[i] = new(big.Int).Mul(d.values[0][i], d.totals[1])
		b[i] = new(big.Int).Mul(d.values[1][i], d.totals[0])
	}
	// Sort by a[i]/b[i], largest first. The comparison uses cross products, because b[i] may
	// be 0. In that case a[i] is above 0, because `order` contains only valued items.
	slices.SortStableFunc(order, func(i, j int) int {
		return new(big.Int).Mul(a[j], b[i]).Cmp(new(big.Int).Mul(a[i], b[j]))
	})

	// gap is the scaled value that party 1 gets minus the scaled value that party 0 gets, if
	// party 0 takes all items before item i and no others. If party 0 also takes item i, gap
	// falls by a[i]+b[i].
	gap := new(big.Int).Mul(d.totals[0], d.totals[1])
	for _, i := range order {
		closes := new(big.Int).Add(a[i], b[i])
		switch {
		case gap.Sign() <= 0:
			give(i, zero)
		case gap.Cmp(closes) >= 0:
			give(i, one)
		default:
			give(i, new(big.Rat).SetFrac(gap, closes))
		}
		gap = new(big.Int).Sub(gap, closes)
	}
	return shares
}

// proportional divides each valued item in proportion to the parties' values, after it
// scales all valuations to a common total. By the Cauchy-Schwarz inequality, each of n
// parties gets at least 1/n of its own total. A party with a total of 0 gets no valued item.
func (d division) proportional() [][]*big.Rat {
	shares := d.equalShares()
	common := big.NewInt(1)
	for _, t := range d.totals {
		if t.Sign() > 0 {
			common.Mul(common, t)
		}
	}
	factors := make([]*big.Int, len(d.totals))
	for p, t := range d.totals {
		factors[p] = new(big.Int)
		if t.Sign() > 0 {
			factors[p].Quo(common, t)
		}
	}
	for i := range d.items {
		if !d.valued(i) {
			continue
		}
		scaled, sum := make([]*big.Int, len(d.totals)), new(big.Int)
		for p := range d.totals {
			scaled[p] = new(big.Int).Mul(d.values[p][i], factors[p])
			sum.Add(sum, scaled[p])
		}
		for p := range d.totals {
			shares[p][i] = new(big.Rat).SetFrac(scaled[p], sum)
		}
	}
	return shares
}
