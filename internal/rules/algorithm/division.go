package algorithm

import (
	"math/big"
	"slices"
)

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
