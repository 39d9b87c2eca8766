package algorithm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

const (
	maxNonceDigits = 1024
	randomDomain   = "fairpact/random.v1\x00"
)

var randomV1 = &Algorithm{
	ID:          Random,
	Name:        "Verifiable random selection: XOR of the parties' nonces, combined with a public randomness beacon; lowest SHA-256 wins",
	Title:       "Draw one of you",
	Purpose:     "who is drawn, from a number of each party and a public beacon",
	Ready:       "nothing; you only press a button. After the draw all parties see the random numbers (nonces) of all, so that each can check the draw",
	MinParties:  2,
	MaxParties:  10_000,
	MaxInput:    4 << 10,
	NeedsBeacon: true,
	Properties:  []string{"beacon-verified"},
	checkParams: func(_ []string, params map[string]any) ([]string, error) {
		_, err := readBeaconRound(params)
		return nil, err
	},
	checkInput: func(_ []string, _, input map[string]any) error {
		_, err := readNonce(input)
		return err
	},
	resultLimit: func([]string, map[string]any) int { return 1 << 10 }, // the label of the winner and the beacon round
	compute:     computeRandom,
	redraw:      redrawRandom,
}

type randomResult struct {
	Winner      int     `json:"winner"`
	Label       string  `json:"label"`
	Ticket      string  `json:"ticket"`       // the lowest ticket, in 64 hex digits
	NonceDigest string  `json:"nonce_digest"` // SHA-256 of the XOR of all nonces; the XOR itself would let each party of a two-party deal compute the other party's nonce
	Beacon      *Beacon `json:"beacon"`
}

func readBeaconRound(params map[string]any) (int64, error) {
	m := canon.MembersOf(params, "algorithm_params.")
	round := m.Integer("beacon_round", "the beacon round, a positive integer")
	if round < 1 || round > canon.MaxInt {
		m.Fail("algorithm_params.beacon_round is %d: give an integer of 1 to %d", round, canon.MaxInt)
	}
	return round, m.Err()
}

// readNonce adds a 0 on the left of an odd number of hex digits. Its errors MUST NOT contain the nonce.
func readNonce(input map[string]any) ([]byte, error) {
	m := canon.MembersOf(input, "input.")
	digits := m.Text("nonce", "a string of hex digits")
	if m.Err() != nil {
		return nil, m.Err()
	}
	if len(digits) > maxNonceDigits {
		return nil, fmt.Errorf("input.nonce is too long: a nonce has at most %d hex digits", maxNonceDigits)
	}
	if len(digits)%2 == 1 {
		digits = "0" + digits
	}
	nonce, err := hex.DecodeString(digits)
	if err != nil {
		return nil, errors.New("input.nonce holds a character that is not a hex digit: use only 0-9, a-f and A-F")
	}
	return nonce, nil
}

// xorNonces pads shorter nonces on the left with zero bytes.
func xorNonces(nonces [][]byte) []byte {
	size := 0
	for _, nonce := range nonces {
		size = max(size, len(nonce))
	}
	sum := make([]byte, size)
	for _, nonce := range nonces {
		tail := sum[size-len(nonce):]
		for i, b := range nonce {
			tail[i] ^= b
		}
	}
	return sum
}

func computeRandom(labels []string, params map[string]any, inputs []map[string]any, b *Beacon) (any, error) {
	round, err := readBeaconRound(params)
	if err != nil {
		return nil, err
	}
	chain, randomness, err := readBeacon(b, round)
	if err != nil {
		return nil, err
	}
	nonces := make([][]byte, len(inputs))
	for i, input := range inputs {
		if nonces[i], err = readNonce(input); err != nil {
			return nil, ofParty(i, err)
		}
	}
	return drawn(labels, chain, randomness, sha256.Sum256(xorNonces(nonces)), b), nil
}

func redrawRandom(labels []string, result []byte) ([]byte, error) {
	var shown randomResult
	if err := json.Unmarshal(result, &shown); err != nil {
		return nil, errors.New("the result does not have the form of random.v1")
	}
	if shown.Beacon == nil {
		return nil, errors.New("the result has no beacon")
	}
	chain, randomness, err := readBeacon(shown.Beacon, shown.Beacon.Round)
	if err != nil {
		return nil, err
	}
	digest, err := readHex("nonce_digest", shown.NonceDigest, sha256.Size)
	if err != nil {
		return nil, err
	}
	return canon.Marshal(drawn(labels, chain, randomness, [32]byte(digest), shown.Beacon))
}

func drawn(labels []string, chain, randomness, digest [32]byte, b *Beacon) randomResult {
	seed := drawSeed(chain, b.Round, randomness, digest)

	// SPEC 1: lowest SHA-256 wins.
	var lowest [sha256.Size]byte
	winner := -1
	for i := range labels {
		ticket := drawTicket(seed, i)
		if winner < 0 || bytes.Compare(ticket[:], lowest[:]) < 0 {
			winner, lowest = i, ticket
		}
	}
	return randomResult{
		Winner:      winner,
		Label:       labels[winner],
		Ticket:      hex.EncodeToString(lowest[:]),
		NonceDigest: hex.EncodeToString(digest[:]),
		Beacon:      b,
	}
}

// drawSeed returns SHA-256("fairpact/random.v1" ‖ 0x00 ‖ chain hash ‖ round as u64
// big-endian ‖ randomness ‖ SHA-256 of the XOR of the nonces).
func drawSeed(chain [32]byte, round int64, randomness, nonceDigest [32]byte) [32]byte {
	message := append([]byte(randomDomain), chain[:]...)
	message = binary.BigEndian.AppendUint64(message, uint64(round))
	message = append(message, randomness[:]...)
	message = append(message, nonceDigest[:]...)
	return sha256.Sum256(message)
}

// drawTicket returns SHA-256(seed ‖ party index as u32 big-endian).
func drawTicket(seed [32]byte, party int) [32]byte {
	var message [36]byte
	copy(message[:], seed[:])
	binary.BigEndian.PutUint32(message[32:], uint32(party))
	return sha256.Sum256(message[:])
}

// readBeacon does not verify the round's signature: the service did, before it stored the round.
func readBeacon(b *Beacon, round int64) (chain, randomness [32]byte, err error) {
	if b == nil {
		return chain, randomness, fmt.Errorf("beacon round %d is not pinned yet: random.v1 cannot draw without it", round)
	}
	if b.Round < 1 {
		return chain, randomness, fmt.Errorf("beacon.round is %d, but the first round is 1", b.Round)
	}
	if b.Round != round {
		return chain, randomness, fmt.Errorf("the pinned beacon round is %d, but the deal declared round %d", b.Round, round)
	}
	var parts [3][]byte
	for i, part := range []struct {
		name, digits string
		size         int
	}{{"chain_hash", b.ChainHash, 32}, {"randomness", b.Randomness, 32}, {"signature", b.Signature, 48}} { // a signature is a point of G1
		if parts[i], err = readHex("beacon."+part.name, part.digits, part.size); err != nil {
			return chain, randomness, err
		}
	}
	chain, randomness = [32]byte(parts[0]), [32]byte(parts[1])
	if sha256.Sum256(parts[2]) != randomness {
		return chain, randomness, errors.New("beacon.randomness is not SHA-256 of beacon.signature")
	}
	return chain, randomness, nil
}

func readHex(name, digits string, size int) ([]byte, error) {
	raw, err := canon.ParseHex(digits, size)
	if err != nil {
		return nil, fmt.Errorf("%s is not %d lower-case hex digits", name, 2*size)
	}
	return raw, nil
}
