package algorithm

import (
	"encoding/json"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// divide checks the sums of shares and payouts. worth[s] is the worth of the coalition with the bit mask s.
func divide(t rapid.TB, n int, worth []int64) (shares []*big.Rat, payouts []int64) {
	labels := labelsN(n)
	g := game{names: labels}
	values := map[string]any{}
	for members := 1; members < len(worth); members++ {
		values[g.key(members)] = worth[members]
	}
	inputs := make([]map[string]any, n)
	for i := range inputs {
		inputs[i] = map[string]any{"accept": true}
	}
	data, err := shapleyV1.Compute(labels, map[string]any{"coalition_values": values}, inputs, nil)
	if err != nil {
		t.Fatal(err)
	}
	var result shapleyResult
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	total := worth[len(worth)-1]
	if result.Total != total || len(result.Shares) != n {
		t.Fatalf("got the result %s, want total %d and %d shares", data, total, n)
	}
	sum, paid := new(big.Rat), int64(0)
	for i, s := range result.Shares {
		share, ok := new(big.Rat).SetString(s.Share)
		if !ok || share.RatString() != s.Share || s.Party != i || s.Label != labels[i] {
			t.Fatalf("share %d of %s: want a fraction in lowest terms for party %d, %s", i, data, i, labels[i])
		}
		shares, payouts = append(shares, share), append(payouts, s.Payout)
		sum.Add(sum, share)
		paid += s.Payout
		off := new(big.Rat).Sub(share, new(big.Rat).SetInt64(s.Payout))
		if off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
			t.Fatalf("party %d has share %s and payout %d, want them less than 1 apart", i, s.Share, s.Payout)
		}
	}
	if sum.Cmp(new(big.Rat).SetInt64(total)) != 0 || paid != total {
		t.Fatalf("shares add up to %s and payouts to %d, want %d", sum, paid, total)
	}
	return shares, payouts
}

// byOrders computes the Shapley values by their definition. The value of a player is the
// mean of the player's marginal contributions over all orders in which players can arrive.
func byOrders(worth []int64, n int) []*big.Rat {
	sums, count := make([]*big.Rat, n), int64(0)
	for i := range sums {
		sums[i] = new(big.Rat)
	}
	var arrive func(there int)
	var order []int
	arrive = func(there int) {
		if len(order) == n {
			count++
			s := 0
			for _, p := range order {
				sums[p].Add(sums[p], new(big.Rat).SetInt64(worth[s|1<<p]-worth[s]))
				s |= 1 << p
			}
			return
		}
		for p := range n {
			if there>>p&1 == 0 {
				order = append(order, p)
				arrive(there | 1<<p)
				order = order[:len(order)-1]
			}
		}
	}
	arrive(0)
	for _, s := range sums {
		s.Quo(s, new(big.Rat).SetInt64(count))
	}
	return sums
}

func TestShapleyIsTheMeanOverOrders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "players")
		w := rapid.SliceOfN(worth(), 1<<n, 1<<n).Draw(t, "worth")
		w[0] = 0
		shares, _ := divide(t, n, w)
		for i, want := range byOrders(w, n) {
			if shares[i].Cmp(want) != 0 {
				t.Fatalf("player %d has share %s, want %s", i, shares[i], want)
			}
		}
	})
}

func TestLargestRemainder(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		numerators  []int64
		denominator int64
		want        []int64
	}{
		{[]int64{100, 100, 100}, 3, []int64{34, 33, 33}},
		{[]int64{1, 1, 1, 1}, 4, []int64{1, 0, 0, 0}},
		{[]int64{1, 3}, 4, []int64{0, 1}},
		{[]int64{3, -3}, 2, []int64{2, -2}},
		{[]int64{-1, 3}, 2, []int64{0, 1}},
		{[]int64{-5, -4, 15}, 6, []int64{-1, -1, 3}},
		{[]int64{-1, -1, 2}, 3, []int64{0, 0, 0}},
		{[]int64{6, -6}, 2, []int64{3, -3}},
		{[]int64{0, 0}, 2, []int64{0, 0}},
	} {
		var numerators []*big.Int
		total := int64(0)
		for _, n := range tc.numerators {
			numerators = append(numerators, big.NewInt(n))
			total += n
		}
		got := largestRemainder(numerators, big.NewInt(tc.denominator), total/tc.denominator)
		if !slices.Equal(got, tc.want) {
			t.Errorf("largestRemainder of %v over %d = %v, want %v", tc.numerators, tc.denominator, got, tc.want)
		}
	}
}
