package algorithm

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

func worth() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 3), rapid.Int64Range(0, 100),
		rapid.Int64Range(0, canon.MaxInt), rapid.Just(canon.MaxInt))
}

type divided struct {
	items  []string
	values [][]int64
	totals []*big.Rat
	shares [][]*big.Rat
	ppb    []int64
	method string
}

// partOf returns what party q's shares are worth to party p, as a fraction of party p's total.
func (d divided) partOf(p, q int) *big.Rat {
	sum := new(big.Rat)
	for i, v := range d.values[p] {
		sum.Add(sum, new(big.Rat).Mul(d.shares[q][i], new(big.Rat).SetInt64(v)))
	}
	return sum.Quo(sum, d.totals[p])
}

func (d divided) valued(item int) bool {
	for _, own := range d.values {
		if own[item] > 0 {
			return true
		}
	}
	return false
}

func computeDivision(t *rapid.T, values [][]int64) divided {
	d := divided{values: values}
	list := []any{}
	for i := range values[0] {
		d.items = append(d.items, fmt.Sprintf("item %d", i))
		list = append(list, d.items[i])
	}
	inputs := make([]map[string]any, len(values))
	for p, own := range values {
		valuations := map[string]any{}
		total := new(big.Rat)
		for i, v := range own {
			valuations[d.items[i]] = v
			total.Add(total, new(big.Rat).SetInt64(v))
		}
		inputs[p] = map[string]any{"valuations": valuations}
		d.totals = append(d.totals, total)
	}
	data, err := splitV1.Compute(labelsN(len(values)), map[string]any{"items": list}, inputs, nil)
	if err != nil {
		t.Fatal(err)
	}
	var result splitResult
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	d.method = result.Method
	for p, s := range result.Shares {
		if s.Party != p || s.Label != fmt.Sprintf("p%d", p) {
			t.Fatalf("share %d is of party %d, %q; want party %d, p%d", p, s.Party, s.Label, p, p)
		}
		row := make([]*big.Rat, len(d.items))
		for i := range row {
			row[i] = new(big.Rat)
		}
		last := -1
		for _, part := range s.Items {
			var i int
			if _, err := fmt.Sscanf(part.Item, "item %d", &i); err != nil || i <= last {
				t.Fatalf("item %q is not in the order of the params: %s", part.Item, data)
			}
			last = i
			if _, ok := row[i].SetString(part.Share); !ok || row[i].Sign() <= 0 || row[i].RatString() != part.Share {
				t.Fatalf("item %q has share %q, want a fraction above 0 in lowest terms: %s", part.Item, part.Share, data)
			}
		}
		d.shares = append(d.shares, row)
		d.ppb = append(d.ppb, s.ValuePPB)
	}
	d.checkWhole(t)
	return d
}

func (d divided) checkWhole(t *rapid.T) {
	n := int64(len(d.values))
	for i := range d.items {
		sum := new(big.Rat)
		for p := range d.shares {
			sum.Add(sum, d.shares[p][i])
			if !d.valued(i) && d.shares[p][i].Cmp(big.NewRat(1, n)) != 0 {
				t.Fatalf("party %d gets %s of item %d, which no party values, want 1/%d", p, d.shares[p][i], i, n)
			}
			if d.valued(i) && d.totals[p].Sign() == 0 && d.shares[p][i].Sign() != 0 {
				t.Fatalf("party %d values nothing and gets %s of item %d, which another party values; want 0", p, d.shares[p][i], i)
			}
		}
		if sum.Cmp(big.NewRat(1, 1)) != 0 {
			t.Fatalf("the shares of item %d add up to %s, want 1", i, sum)
		}
	}
	for p := range d.values {
		if d.totals[p].Sign() == 0 {
			if d.ppb[p] != 0 {
				t.Fatalf("party %d values nothing and has value_ppb %d, want 0", p, d.ppb[p])
			}
			continue
		}
		// value_ppb is rounded down twice. The first rounding loses less than 10^-18 of the
		// total for each item. The second rounding is of the sum, and loses less than 10^-9 of
		// the total. With at most 1,000 items, value_ppb is too low by less than 1.000001.
		exact := new(big.Rat).Mul(d.partOf(p, p), big.NewRat(1_000_000_000, 1))
		off := new(big.Rat).Sub(exact, new(big.Rat).SetInt64(d.ppb[p]))
		if off.Sign() < 0 || off.Cmp(big.NewRat(1_000_001, 1_000_000)) >= 0 {
			t.Fatalf("party %d has value_ppb %d, want %s rounded down", p, d.ppb[p], exact.FloatString(12))
		}
	}
}

func drawValues(t *rapid.T, parties, maxItems int) [][]int64 {
	items := rapid.IntRange(1, maxItems).Draw(t, "items")
	values := make([][]int64, parties)
	for p := range values {
		if rapid.IntRange(0, 9).Draw(t, "values nothing") == 0 {
			values[p] = make([]int64, items)
			continue
		}
		values[p] = rapid.SliceOfN(worth(), items, items).Draw(t, "values")
	}
	return values
}

func TestInputWarningNamesItemsLeftOut(t *testing.T) {
	t.Parallel()
	params := map[string]any{"items": []any{"boat", "car", "lamp"}}
	for input, want := range map[string]string{
		`{"valuations":{"boat":50,"car":30,"lamp":0}}`: "",
		`{"valuations":{"boat":50,"car":30}}`:          `input.valuations leaves out "lamp"; an item that you leave out counts 0 for you`,
		`{"valuations":{}}`:                            "all items count 0 for you, so you get nothing that another party values",
		`{"valuations":{"boat":0,"car":0,"lamp":0}}`:   "all items count 0 for you, so you get nothing that another party values",
	} {
		if got := splitV1.InputWarning(params, object(t, input)); got != want {
			t.Errorf("the warning about %s is %q, want %q", input, got, want)
		}
	}
	if got := randomV1.InputWarning(nil, object(t, `{"nonce":""}`)); got != "" {
		t.Errorf("random.v1 warns %q, want no warning", got)
	}
}

func TestAdjustedWinnerProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := computeDivision(t, drawValues(t, 2, 8))
		if d.method != "adjusted_winner" {
			t.Fatalf("method %q", d.method)
		}
		split := 0
		for i := range d.items {
			if d.valued(i) && !d.shares[0][i].IsInt() {
				split++
			}
		}
		if split > 1 {
			t.Fatalf("%d valued items are split, want at most 1", split)
		}
		if d.totals[0].Sign() == 0 || d.totals[1].Sign() == 0 {
			return
		}
		first, second := d.partOf(0, 0), d.partOf(1, 1)
		if first.Cmp(second) != 0 {
			t.Fatalf("not equitable: the parties get %s and %s of their totals, want equal parts", first, second)
		}
		if first.Cmp(d.partOf(0, 1)) < 0 || second.Cmp(d.partOf(1, 0)) < 0 {
			t.Fatalf("not envy-free: the parts of the other are worth %s to party 0 (own %s) and %s to party 1 (own %s)", d.partOf(0, 1), first, d.partOf(1, 0), second)
		}
		checkEfficient(t, d)
	})
}

// checkEfficient checks that a division is Pareto-efficient. Values are additive and items
// are divisible, so two conditions are enough. First, a party gets nothing of an item that
// only the other party values. Second, no exchange of small parts of two items helps both
// parties.
func checkEfficient(t *rapid.T, d divided) {
	for i := range d.items {
		for p := range 2 {
			if d.valued(i) && d.shares[p][i].Sign() > 0 && d.values[p][i] == 0 {
				t.Fatalf("party %d gets %s of item %d, which only the other party values; want 0", p, d.shares[p][i], i)
			}
		}
		for j := range d.items {
			if !d.valued(i) || !d.valued(j) || d.shares[0][i].Sign() == 0 || d.shares[1][j].Sign() == 0 {
				continue
			}
			keep := new(big.Int).Mul(big.NewInt(d.values[0][i]), big.NewInt(d.values[1][j]))
			trade := new(big.Int).Mul(big.NewInt(d.values[0][j]), big.NewInt(d.values[1][i]))
			if keep.Cmp(trade) < 0 {
				t.Fatalf("to trade parts of item %d for parts of item %d helps both parties, want no such trade: values %v", i, j, d.values)
			}
		}
	}
}

func TestProportionalProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 16).Draw(t, "parties")
		d := computeDivision(t, drawValues(t, n, 6))
		if d.method != "proportional" {
			t.Fatalf("method %q", d.method)
		}
		for p := range n {
			if d.totals[p].Sign() > 0 && d.partOf(p, p).Cmp(big.NewRat(1, int64(n))) < 0 {
				t.Fatalf("party %d gets %s of its total, want at least 1/%d", p, d.partOf(p, p), n)
			}
			for q := range n {
				for i := range d.items {
					if d.totals[p].Sign() == 0 || d.totals[q].Sign() == 0 || !d.valued(i) {
						continue
					}
					// share_p : share_q must be value_p/total_p : value_q/total_q, so the two
					// cross products must be equal.
					left, right := new(big.Rat).SetInt64(d.values[q][i]), new(big.Rat).SetInt64(d.values[p][i])
					left.Mul(left.Quo(left, d.totals[q]), d.shares[p][i])
					right.Mul(right.Quo(right, d.totals[p]), d.shares[q][i])
					if left.Cmp(right) != 0 {
						t.Fatalf("item %d: parties %d and %d get %s and %s, want shares in proportion to their scaled values", i, p, q, d.shares[p][i], d.shares[q][i])
					}
				}
			}
		}
	})
}

// What the trust model and the pages say: with two items, the result gives the ratio of each
// party's values away.
func TestSplitOfTwoItemsGivesTheValuesAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		own := rapid.SliceOfN(rapid.Int64Range(1, 100), 2, 2)
		d := computeDivision(t, [][]int64{own.Draw(t, "own"), own.Draw(t, "other")})
		for p, shares := range d.shares {
			first, _ := shares[0].Float64()
			second, _ := shares[1].Float64()
			// value = first × w + second × (1 − w)
			w := (float64(d.ppb[p])/1e9 - second) / (first - second)
			if want := float64(d.values[p][0]) / float64(d.values[p][0]+d.values[p][1]); math.Abs(w-want) > 2e-9/math.Abs(first-second) {
				t.Fatalf("from the result, party %d values the first item at %v of its total, want %v", p, w, want)
			}
		}
	})
}

// What the trust model says of adjusted winner: a party that knows the other's values gains by
// misstating its own.
func TestSplitRewardsAMisstatement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		honest := computeDivision(t, [][]int64{{60, 40}, {30, 70}})
		lying := computeDivision(t, [][]int64{{31, 69}, {30, 70}})
		lying.values[0], lying.totals[0] = honest.values[0], honest.totals[0]
		if lying.partOf(0, 0).Cmp(honest.partOf(0, 0)) <= 0 {
			t.Fatalf("by its true values the party gets %s if it misstates them, and %s if not; want more", lying.partOf(0, 0), honest.partOf(0, 0))
		}
	})
}
