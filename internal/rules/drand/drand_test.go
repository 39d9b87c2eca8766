package drand

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	bls "github.com/consensys/gnark-crypto/ecc/bls12-381"
	"github.com/consensys/gnark-crypto/ecc/bls12-381/fp"
	"github.com/consensys/gnark-crypto/ecc/bls12-381/fr"
	"pgregory.net/rapid"
)

// These values are a round that quicknet's relays served.
const (
	realRound      = 12040883
	realSignature  = "929906c959032ab363c9f26570d215d66f5c06cb0c44fe508c12bb5839f04ec895bb6868e5b9ff13ab289bdb5266b394"
	realRandomness = "173df1f57805453a8d2015268205d68147de12cafc2f451f7bc6adadca3571b3"
)

func unhex(t testing.TB, digits string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func refused(t *testing.T, round int64, signature []byte) {
	t.Helper()
	randomness, err := Quicknet().Verify(round, signature)
	if !errors.Is(err, ErrBadSignature) || randomness != [32]byte{} {
		t.Errorf("round %d, %x: %x, %v; want ErrBadSignature and no randomness", round, signature, randomness, err)
	}
}

func TestQuicknetRound(t *testing.T) {
	randomness, err := Quicknet().Verify(realRound, unhex(t, realSignature))
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(randomness[:]); got != realRandomness {
		t.Errorf("randomness %s, want %s", got, realRandomness)
	}
}

func TestEveryFlippedBitIsRefused(t *testing.T) {
	signature := unhex(t, realSignature)
	for i := range signature {
		for bit := range 8 {
			forged := bytes.Clone(signature)
			forged[i] ^= 1 << bit
			refused(t, realRound, forged)
		}
	}
}

func TestMisshapenSignaturesAreRefused(t *testing.T) {
	signature := unhex(t, realSignature)
	point, err := parseSignature(signature)
	if err != nil {
		t.Fatal(err)
	}
	uncompressed := point.RawBytes()
	infinity := append([]byte{0xc0}, make([]byte, 47)...)
	for name, forged := range map[string][]byte{
		"nothing":                nil,
		"one byte short":         signature[:47],
		"one byte long":          append(bytes.Clone(signature), 0),
		"uncompressed":           uncompressed[:],
		"infinity":               infinity,
		"infinity, larger y":     append([]byte{0xe0}, make([]byte, 47)...),
		"infinity, uncompressed": append([]byte{0x40}, make([]byte, 95)...),
		"infinity, with bits":    append(bytes.Clone(infinity[:47]), 1),
		"ones":                   bytes.Repeat([]byte{0xff}, 48),
	} {
		t.Run(name, func(t *testing.T) { refused(t, realRound, forged) })
	}
}

func TestOtherRoundsAreRefused(t *testing.T) {
	signature := unhex(t, realSignature)
	for _, round := range []int64{1, realRound - 1, realRound + 1, realRound << 8, MaxRound} {
		refused(t, round, signature)
	}
	for _, round := range []int64{0, -1, -realRound, math.MinInt64, MaxRound + 1, math.MaxInt64} {
		if _, err := Quicknet().Verify(round, signature); !errors.Is(err, ErrBadRound) {
			t.Errorf("round %d: %v, want ErrBadRound", round, err)
		}
	}
}

func offSubgroup(t *testing.T) bls.G1Affine {
	t.Helper()
	for i := uint64(1); i < 100; i++ {
		var p bls.G1Affine
		var y2, b fp.Element
		p.X.SetUint64(i)
		b.SetUint64(4) // the curve is y² = x³ + 4
		y2.Square(&p.X).Mul(&y2, &p.X).Add(&y2, &b)
		if p.Y.Sqrt(&y2) != nil && p.IsOnCurve() && !p.IsInSubGroup() {
			return p
		}
	}
	t.Fatal("no point outside the subgroup among a hundred x coordinates")
	return bls.G1Affine{}
}

// The forged signature differs from the real one by a point whose order divides the
// cofactor. The pairing accepts the forgery, so only the subgroup check refuses it.
func TestSecondSignatureByCofactorIsRefused(t *testing.T) {
	// The loop computes torsion = r·p. The order of torsion divides the cofactor, because r
	// is the order of the subgroup. The library's scalar multiplication is correct only for
	// points of the subgroup, so the loop doubles and adds instead.
	var base, torsion bls.G1Jac
	p := offSubgroup(t)
	base.FromAffine(&p)
	r := fr.Modulus()
	for i := r.BitLen() - 1; i >= 0; i-- {
		torsion.DoubleAssign()
		if r.Bit(i) == 1 {
			torsion.AddAssign(&base)
		}
	}
	signature, err := parseSignature(unhex(t, realSignature))
	if err != nil {
		t.Fatal(err)
	}
	var sum bls.G1Jac
	sum.FromAffine(&signature)
	sum.AddAssign(&torsion)
	var forged bls.G1Affine
	forged.FromJacobian(&sum)
	if forged.Equal(&signature) || !forged.IsOnCurve() {
		t.Fatal("the forged point is not another point of the curve")
	}

	_, _, _, g2 := bls.Generators()
	var negated bls.G1Affine
	negated.Neg(&forged)
	if ok, err := bls.PairingCheck([]bls.G1Affine{negated, Hashed(realRound)}, []bls.G2Affine{g2, Quicknet().key}); err != nil || !ok {
		t.Fatalf("the pairing no longer accepts the forgery (%v, %v): the test shows nothing", ok, err)
	}
	encoded := forged.Bytes()
	refused(t, realRound, encoded[:])
}

func TestParseChainRefuses(t *testing.T) {
	q := Quicknet()
	key := hex.EncodeToString(q.PublicKey)
	infinity := "c0" + strings.Repeat("00", 95)

	// The variable `outside` becomes a point of the twist y² = x³ + 4(1+u) that is not in G2.
	var outside bls.G2Affine
	for i := uint64(1); ; i++ {
		outside.X.A0.SetUint64(i)
		b, y2 := outside.X, outside.X
		b.A0.SetUint64(4)
		b.A1.SetUint64(4)
		y2.Square(&outside.X).Mul(&y2, &outside.X).Add(&y2, &b)
		if y2.Legendre() == 1 {
			outside.Y.Sqrt(&y2)
			break
		}
	}
	if !outside.IsOnCurve() || outside.IsInSubGroup() {
		t.Fatal("not a point outside the subgroup")
	}
	outsideKey := outside.Bytes()

	for name, c := range map[string]struct {
		hash, key       string
		period, genesis int64
	}{
		"short hash":           {q.Hash[:62], key, 3, 0},
		"upper-case hash":      {strings.ToUpper(q.Hash), key, 3, 0},
		"hash is no hex":       {q.Hash[:63] + "g", key, 3, 0},
		"no key":               {q.Hash, "", 3, 0},
		"upper-case key":       {q.Hash, strings.ToUpper(key), 3, 0},
		"short key":            {q.Hash, key[:190], 3, 0},
		"long key":             {q.Hash, key + "00", 3, 0},
		"key at infinity":      {q.Hash, infinity, 3, 0},
		"key off the curve":    {q.Hash, key[:190] + "00", 3, 0},
		"key off the subgroup": {q.Hash, hex.EncodeToString(outsideKey[:]), 3, 0},
		"key of G1":            {q.Hash, realSignature, 3, 0},
		"no period":            {q.Hash, key, 0, 0},
		"period over 2^32":     {q.Hash, key, 1 << 32, 0},
		"negative genesis":     {q.Hash, key, 3, -1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseChain(c.hash, c.key, c.period, c.genesis); err == nil {
				t.Error("a chain with a bad value is accepted, want an error")
			}
		})
	}
	parsed, err := ParseChain(q.Hash, key, q.Period, q.Genesis)
	if err != nil || parsed.Hash != q.Hash || !slices.Equal(parsed.PublicKey, q.PublicKey) || parsed.Period != 3 || parsed.Genesis != 1692803367 {
		t.Errorf("parsed chain %+v, %v; want quicknet", parsed, err)
	}
}

func TestRoundTime(t *testing.T) {
	q := Quicknet()
	slow := Chain{Period: math.MaxUint32, Genesis: 1}
	for _, c := range []struct {
		chain       Chain
		round, want int64
	}{
		{q, math.MinInt64, 1692803367},
		{q, 0, 1692803367},
		{q, 1, 1692803367},
		{q, 2, 1692803370},
		{q, realRound, 1692803367 + 3*(realRound-1)},
		{q, MaxRound, 1692803367 + 3*(MaxRound-1)},
		{q, math.MaxInt64, math.MaxInt64},
		{slow, 1 << 30, 1 + (1<<30-1)*math.MaxUint32},
		{slow, 1<<31 + 1, 1 + (1<<31)*math.MaxUint32}, // the last round whose time fits in an int64
		{slow, 1<<31 + 2, math.MaxInt64},
		{slow, MaxRound, math.MaxInt64},
	} {
		if got := c.chain.RoundTime(c.round); got != c.want {
			t.Errorf("round %d, period %d: %d, want %d", c.round, c.chain.Period, got, c.want)
		}
	}
}

func TestRoundAt(t *testing.T) {
	q := Quicknet()
	for _, early := range []int64{math.MinInt64, 0, q.Genesis - 1} {
		if got := q.RoundAt(early); got != 0 {
			t.Errorf("RoundAt(%d) = %d before the genesis, want 0", early, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		c := Chain{Period: rapid.Int64Range(1, math.MaxUint32).Draw(t, "period"), Genesis: rapid.Int64Range(0, 1<<40).Draw(t, "genesis")}
		now := rapid.Int64Range(c.Genesis, math.MaxInt64-1).Draw(t, "now")
		round := c.RoundAt(now)
		if c.RoundTime(round) > now || c.RoundTime(round+1) <= now {
			t.Fatalf("round %d lasts from %d to %d, want it to contain %d", round, c.RoundTime(round), c.RoundTime(round+1), now)
		}
	})
}
