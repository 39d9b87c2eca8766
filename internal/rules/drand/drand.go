// Package drand holds what identifies a drand beacon chain, and verifies its rounds. It is pure.
//
// The scheme is drand's bls-unchained-g1-rfc9380: signature in G1 (48 bytes), public key in G2
// (96 bytes), message SHA-256(round as u64 big-endian).
package drand

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	bls "github.com/consensys/gnark-crypto/ecc/bls12-381"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
)

// Scheme is drand's name of the scheme.
const Scheme = "bls-unchained-g1-rfc9380"

// DST is the domain separation tag of the hash to G1 (RFC 9380 3.1).
const DST = "BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"

// MaxRound is the highest accepted round. A deal names its round as a JSON integer, which
// is at most 2^53−1.
const MaxRound = 1<<53 - 1

// ErrBadRound is returned for a round outside [1, MaxRound]. Round 0 is refused because
// a relay answers it with the newest round.
var ErrBadRound = errors.New("the beacon round is outside [1, 2^53-1]")

// ErrBadSignature is returned for a signature that is not the chain's.
var ErrBadSignature = errors.New("the beacon signature does not verify")

// Chain identifies a beacon. Its values come from configuration, never from a relay.
type Chain struct {
	Hash      string // 64 lower-case hex digits
	PublicKey []byte // 96 bytes, a compressed point of G2
	Period    int64  // seconds between rounds
	Genesis   int64  // unix seconds, the time of round 1

	// GenesisSeed (64 lower-case hex digits) and BeaconID are the rest of what Hash is the hash of. Both
	// are "" until Bound.
	GenesisSeed, BeaconID string

	key bls.G2Affine // PublicKey as a point of G2, checked by ParseChain
}

// Quicknet returns drand's public chain quicknet, which is the default.
func Quicknet() Chain {
	chain, err := ParseChain(
		algorithm.Quicknet,
		"83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c"+
			"8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb"+
			"5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a",
		3, 1692803367)
	if err == nil {
		chain, err = chain.Bound(algorithm.QuicknetSeed, algorithm.QuicknetID)
	}
	if err != nil {
		panic(err) // not possible: the values are constants
	}
	return chain
}

// ParseChain reads a chain from configuration: hash and public key in lower-case hex,
// period in seconds, genesis in unix seconds. Only Bound checks the hash against the other values.
func ParseChain(hash, publicKey string, period, genesis int64) (Chain, error) {
	if _, err := canon.ParseHash(hash); err != nil {
		return Chain{}, fmt.Errorf("the beacon chain hash %.80q has %w", hash, err)
	}
	raw, err := canon.ParseHex(publicKey, bls.SizeOfG2AffineCompressed)
	if err != nil {
		return Chain{}, fmt.Errorf("the beacon public key has %w", err)
	}
	if period < 1 || period > math.MaxUint32 {
		return Chain{}, fmt.Errorf("the beacon period %d is outside [1, 2^32-1]: write the period in seconds", period)
	}
	if genesis < 0 {
		return Chain{}, fmt.Errorf("the beacon genesis %d is before 1970: write the genesis in unix seconds", genesis)
	}
	c := Chain{Hash: hash, PublicKey: raw, Period: period, Genesis: genesis}
	if _, err := c.key.SetBytes(raw); err != nil {
		return Chain{}, fmt.Errorf("the beacon public key is not a compressed point of G2 (%w): use the chain's public key", err)
	}
	if c.key.IsInfinity() {
		return Chain{}, errors.New("the beacon public key is the point at infinity, under which anyone can sign: use the chain's real key")
	}
	return c, nil
}

// Bound returns the chain with its genesis seed and beacon id, if the chain hash is the hash of all values
// of the chain. Otherwise anybody could give another chain's hash to a key of their own.
func (c Chain) Bound(genesisSeed, beaconID string) (Chain, error) {
	hash := algorithm.ChainHash(hex.EncodeToString(c.PublicKey), c.Period, c.Genesis, genesisSeed, beaconID)
	if hash != c.Hash {
		return Chain{}, fmt.Errorf("the beacon chain hash is %s, but public key, period, genesis, genesis seed %.80q and beacon id %.80q hash to %q: write the values that a relay answers at /v2/beacons/ID/info", c.Hash, genesisSeed, beaconID, hash)
	}
	c.GenesisSeed, c.BeaconID = genesisSeed, beaconID
	return c, nil
}

// RoundTime returns the unix time of a round: at least that of round 1, at most math.MaxInt64.
func (c Chain) RoundTime(round int64) int64 {
	if round <= 1 {
		return c.Genesis
	}
	if round-1 > (math.MaxInt64-c.Genesis)/c.Period {
		return math.MaxInt64
	}
	return c.Genesis + (round-1)*c.Period
}

// RoundAt returns the newest round at a unix time, or 0 before the genesis.
func (c Chain) RoundAt(unix int64) int64 {
	if unix < c.Genesis {
		return 0
	}
	return (unix-c.Genesis)/c.Period + 1
}

// Words returns the chain's values for the placeholders of texts.
func (c Chain) Words() map[string]string {
	return map[string]string{"chain": c.Hash, "key": hex.EncodeToString(c.PublicKey), "genesis": fmt.Sprint(c.Genesis), "period": fmt.Sprint(c.Period)}
}

// Verify checks the signature of a round and returns the round's randomness,
// SHA-256(signature). It accepts exactly one byte string as the signature of a round,
// because a second one would give the round a second randomness. The error wraps
// ErrBadRound or ErrBadSignature.
func (c Chain) Verify(round int64, signature []byte) (randomness [32]byte, err error) {
	if _, err := c.Point(round, signature); err != nil {
		return randomness, err
	}
	return sha256.Sum256(signature), nil
}

// Point is Verify, but returns the signature as a point of G1. It opens what is sealed for the round.
func (c Chain) Point(round int64, signature []byte) (point bls.G1Affine, err error) {
	if round < 1 || round > MaxRound {
		return bls.G1Affine{}, fmt.Errorf("%w: %d", ErrBadRound, round)
	}
	if point, err = parseSignature(signature); err != nil {
		return bls.G1Affine{}, fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	// e(signature, g2) = e(hashed, key) is the same as e(-signature, g2) · e(hashed, key) = 1.
	_, _, _, g2 := bls.Generators()
	var negated bls.G1Affine
	negated.Neg(&point)
	// PairingCheck fails only if the slices differ in length.
	if ok, _ := bls.PairingCheck([]bls.G1Affine{negated, Hashed(round)}, []bls.G2Affine{g2, c.key}); !ok {
		return bls.G1Affine{}, fmt.Errorf("%w for round %d under the chain's key", ErrBadSignature, round)
	}
	return point, nil
}

// Key returns the public key as a point of G2.
func (c Chain) Key() bls.G2Affine { return c.key }

// Hashed returns the point of G1 that the beacon's secret multiplies to sign the round.
func Hashed(round int64) bls.G1Affine {
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], uint64(round))
	message := sha256.Sum256(number[:])
	point, err := bls.HashToG1(message[:], []byte(DST))
	if err != nil {
		panic(err) // only if DST is longer than 255 bytes
	}
	return point
}

// parseSignature reads a compressed point of G1. SetBytes checks the subgroup, but ignores
// trailing bytes and accepts infinity.
func parseSignature(signature []byte) (point bls.G1Affine, err error) {
	if len(signature) != bls.SizeOfG1AffineCompressed {
		return point, fmt.Errorf("it has %d bytes instead of %d", len(signature), bls.SizeOfG1AffineCompressed)
	}
	if _, err := point.SetBytes(signature); err != nil {
		return point, fmt.Errorf("it is not a compressed point of G1: %w", err)
	}
	if point.IsInfinity() {
		return point, errors.New("it is the point at infinity")
	}
	if encoded := point.Bytes(); !slices.Equal(encoded[:], signature) {
		return point, errors.New("it is not the canonical encoding of its point")
	}
	return point, nil
}
