// Package beacon fetches rounds of a drand randomness beacon from relays, which it does
// not trust. It accepts a round only if the round's BLS signature verifies under the
// chain's pinned public key. It computes the randomness from that signature.
//
// The scheme is drand's bls-unchained-g1-rfc9380: signature in G1 (48 bytes),
// public key in G2 (96 bytes), message SHA-256(round as u64 big-endian).
package beacon

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	bls "github.com/consensys/gnark-crypto/ecc/bls12-381"

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

	key bls.G2Affine // PublicKey as a point of G2, checked by ParseChain
}

// Quicknet returns drand's public chain quicknet, which is the default.
func Quicknet() Chain {
	chain, err := ParseChain(
		"52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971",
		"83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c"+
			"8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb"+
			"5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a",
		3, 1692803367)
	if err != nil {
		panic(err) // not possible: the values are constants
	}
	return chain
}

// ParseChain reads a chain from configuration: hash and public key in lower-case hex,
// period in seconds, genesis in unix seconds. It cannot check the hash against the other
// values, because the hash also covers drand's group hash. The operator MUST check the hash.
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
	if round < 1 || round > MaxRound {
		return randomness, fmt.Errorf("%w: %d", ErrBadRound, round)
	}
	point, err := parseSignature(signature)
	if err != nil {
		return randomness, fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	message := Message(round)
	hashed, err := bls.HashToG1(message[:], []byte(DST))
	if err != nil {
		return randomness, fmt.Errorf("cannot hash round %d to the curve: %w", round, err)
	}
	// e(signature, g2) = e(hashed, key) is the same as e(-signature, g2) · e(hashed, key) = 1.
	_, _, _, g2 := bls.Generators()
	point.Neg(&point)
	// PairingCheck fails only if the slices differ in length.
	if ok, _ := bls.PairingCheck([]bls.G1Affine{point, hashed}, []bls.G2Affine{g2, c.key}); !ok {
		return randomness, fmt.Errorf("%w for round %d under the chain's key", ErrBadSignature, round)
	}
	return sha256.Sum256(signature), nil
}

// Message returns the bytes that the beacon signs for a round.
func Message(round int64) [32]byte {
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], uint64(round))
	return sha256.Sum256(number[:])
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
