package algorithm

import (
	"encoding/json"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairpact/fairpact/internal/canon"
)

// divide computes a game given by the members' bits, over the keys of the
// labels, and reads the shares back as fractions.
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
		t.Fatalf("total %d: %s", total, data)
	}
	sum, paid := new(big.Rat), int64(0)
	for i, s := range result.Shares {
		share, ok := new(big.Rat).SetString(s.Share)
		if !ok || share.RatString() != s.Share || s.Party != i || s.Label != labels[i] {
			t.Fatalf("share %d: %s", i, data)
		}
		shares, payouts = append(shares, share), append(payouts, s.Payout)
		sum.Add(sum, share)
		paid += s.Payout
		off := new(big.Rat).Sub(share, new(big.Rat).SetInt64(s.Payout))
		if off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
			t.Fatalf("party %d: share %s, payout %d", i, s.Share, s.Payout)
		}
	}
	if sum.Cmp(new(big.Rat).SetInt64(total)) != 0 || paid != total {
		t.Fatalf("shares sum to %s, payouts to %d, total %d", sum, paid, total)
	}
	return shares, payouts
}

func drawGame(t *rapid.T, n int, value *rapid.Generator[int64]) []int64 {
	worth := rapid.SliceOfN(value, 1<<n, 1<<n).Draw(t, "worth")
	worth[0] = 0
	return worth
}

// The definition: the mean of the marginal contributions over all orders of
// arrival.
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
		n := rapid.IntRange(2, 5).Draw(t, "players")
		w := drawGame(t, n, worth())
		shares, _ := divide(t, n, w)
		for i, want := range byOrders(w, n) {
			if shares[i].Cmp(want) != 0 {
				t.Fatalf("player %d: %s, want %s", i, shares[i], want)
			}
		}
	})
}

// swapBits exchanges two players in a coalition.
func swapBits(members, i, j int) int {
	if members>>i&1 != members>>j&1 {
		members ^= 1<<i | 1<<j
	}
	return members
}

func TestShapleyAxioms(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "players")
		w := drawGame(t, n, worth())
		shares, _ := divide(t, n, w) // efficiency is checked in there
		i := rapid.IntRange(0, n-1).Draw(t, "i")
		j := (i + rapid.IntRange(1, n-1).Draw(t, "distance")) % n

		renamed := make([]int64, len(w))
		symmetric := make([]int64, len(w))
		null := make([]int64, len(w))
		for s := range w {
			renamed[s] = w[swapBits(s, i, j)]
			symmetric[s] = w[min(s, swapBits(s, i, j))]
			null[s] = w[s&^(1<<i)]
		}
		swapped, _ := divide(t, n, renamed)
		if swapped[i].Cmp(shares[j]) != 0 || swapped[j].Cmp(shares[i]) != 0 {
			t.Fatalf("players %d and %d change places, and %v become %v", i, j, shares, swapped)
		}
		same, _ := divide(t, n, symmetric)
		if same[i].Cmp(same[j]) != 0 {
			t.Fatalf("players %d and %d are alike and get %s and %s", i, j, same[i], same[j])
		}
		zero, payouts := divide(t, n, null)
		if zero[i].Sign() != 0 || payouts[i] != 0 {
			t.Fatalf("player %d adds nothing and gets %s, paid %d", i, zero[i], payouts[i])
		}
	})
}

func TestShapleyIsAdditive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "players")
		half := rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(0, canon.MaxInt/2))
		v, w := drawGame(t, n, half), drawGame(t, n, half)
		both := make([]int64, len(v))
		for s := range both {
			both[s] = v[s] + w[s]
		}
		ofV, _ := divide(t, n, v)
		ofW, _ := divide(t, n, w)
		ofBoth, _ := divide(t, n, both)
		for i := range n {
			if sum := new(big.Rat).Add(ofV[i], ofW[i]); sum.Cmp(ofBoth[i]) != 0 {
				t.Fatalf("player %d: %s + %s is not %s", i, ofV[i], ofW[i], ofBoth[i])
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
			t.Errorf("%v over %d: %v, want %v", tc.numerators, tc.denominator, got, tc.want)
		}
	}
}

func BenchmarkShapley8(b *testing.B) {
	w := make([]int64, 256)
	for s := range w {
		w[s] = canon.MaxInt - int64(s*s)
	}
	w[0] = 0
	for b.Loop() {
		divide(b, 8, w)
	}
}
