// Package timelock seals bytes for a round of a drand beacon. Before the beacon publishes the
// signature of the round, nobody can open a seal. Afterwards everybody can. It also defines the
// texts that surround a seal: the opening inside it, the receipt for it, and the statement that
// closes the commitments of a deal.
//
// A seal is an armored age file (age-encryption.org/v1) with one stanza of type "tlock", as the
// tools of drand (tlock, tle, tlock-js) write it. The stanza holds the file key, encrypted by
// identity-based encryption: the public key is that of the beacon, the identity is the round, and
// the private key of the identity is the round's signature.
//
// Sources:
//
//	age        C2SP, age-encryption.org/v1: header, STREAM payload, armor
//	drand      drand/tlock and drand/kyber, encrypt/ibe: stanza, tags and byte orders
//	BF         Boneh and Franklin, Identity-Based Encryption from the Weil Pairing (2001),
//	           section 4.2: FullIdent, with the transform of Fujisaki and Okamoto (1999)
//	RFC 9380   the hash to G1, suite BLS12381G1_XMD:SHA-256_SSWU_RO_
//
// The package is pure. The caller passes random bytes, signatures and times.
package timelock

import (
	"errors"
	"fmt"
	"slices"

	bls "github.com/consensys/gnark-crypto/ecc/bls12-381"

	"github.com/fairpact/fairpact/internal/rules/drand"
)

const (
	// Delay is the minimum number of seconds between a deal's commit_deadline and the round of its
	// seals. During this time, witnesses cosign the digest of the closed commitments.
	Delay = 60
	// Room is the minimum number of seconds between the round of a deal's seals and its
	// reveal_deadline. During this time, a party whose seal failed can reveal by hand.
	Room = 60
)

// RoundOf returns the round for which the parties of a deal seal: the first round that is due at or
// after commit_deadline + Delay. The deadline MUST be within ±canon.MaxInt.
func RoundOf(c drand.Chain, commitDeadline int64) int64 {
	wait := commitDeadline + Delay - c.Genesis
	if wait <= 0 {
		return 1
	}
	return (wait+c.Period-1)/c.Period + 1
}

// CheckDeadlines returns an error if a deal with these deadlines leaves too little room for seals.
func CheckDeadlines(c drand.Chain, commitDeadline, revealDeadline int64) error {
	round := RoundOf(c, commitDeadline)
	if earliest := c.RoundTime(round) + Room; revealDeadline < earliest {
		return fmt.Errorf("reveal_deadline %d is less than %d s after beacon round %d, which opens the seals: send %d or later", revealDeadline, Room, round, earliest)
	}
	return nil
}

// Key opens the seals of one round. It holds a verified signature of the round. Only NewKey returns
// a usable Key.
type Key struct {
	chain string
	round int64
	point bls.G1Affine
}

// NewKey verifies the signature of a round and returns the key of the round's seals. The error wraps
// drand.ErrBadRound or drand.ErrBadSignature.
func NewKey(c drand.Chain, round int64, signature []byte) (Key, error) {
	point, err := c.Point(round, signature)
	if err != nil {
		return Key{}, err
	}
	return Key{chain: c.Hash, round: round, point: point}, nil
}

// parseG2 reads a compressed point of G2, which is not the point at infinity. SetBytes checks the
// curve and the subgroup, but ignores trailing bytes.
func parseG2(encoded []byte) (point bls.G2Affine, err error) {
	if len(encoded) != bls.SizeOfG2AffineCompressed {
		return point, fmt.Errorf("has %d bytes instead of %d", len(encoded), bls.SizeOfG2AffineCompressed)
	}
	if _, err := point.SetBytes(encoded); err != nil {
		return point, fmt.Errorf("is not a compressed point of G2: %w", err)
	}
	if again := point.Bytes(); point.IsInfinity() || !slices.Equal(again[:], encoded) {
		return point, errors.New("is the point at infinity, or not the canonical encoding of its point")
	}
	return point, nil
}
