package algorithm

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// quicknetRound is a real round of the drand network quicknet.
var quicknetRound = Beacon{
	ChainHash:  "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971",
	Round:      12040883,
	Randomness: "173df1f57805453a8d2015268205d68147de12cafc2f451f7bc6adadca3571b3",
	Signature:  "929906c959032ab363c9f26570d215d66f5c06cb0c44fe508c12bb5839f04ec895bb6868e5b9ff13ab289bdb5266b394",
}

func nonceInputs(nonces []string) []map[string]any {
	inputs := make([]map[string]any, len(nonces))
	for i, nonce := range nonces {
		inputs[i] = map[string]any{"nonce": nonce}
	}
	return inputs
}

func draw(t rapid.TB, nonces []string, b Beacon) randomResult {
	data, err := randomV1.Compute(labelsN(len(nonces)), map[string]any{"beacon_round": b.Round}, nonceInputs(nonces), &b)
	if err != nil {
		t.Fatal(err)
	}
	var result randomResult
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	return result
}

func hexNonce() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[0-9a-fA-F]{0,6}`), rapid.StringMatching(`[0-9a-f]{64}`), rapid.StringMatching(`0{0,5}[0-9A-F]{1,70}`))
}

// The test computes the seed and the tickets as section 4.2 of protocol.md defines them,
// without drawSeed and drawTicket.
func TestRandomDrawsTheLowestTicket(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nonces := rapid.SliceOfN(hexNonce(), 2, 40).Draw(t, "nonces")
		got := draw(t, nonces, quicknetRound)

		size, xor := 0, new(big.Int)
		for _, nonce := range nonces {
			size = max(size, (len(nonce)+1)/2)
			n, _ := new(big.Int).SetString("0"+nonce, 16)
			xor.Xor(xor, n)
		}
		digest := sha256.Sum256(xor.FillBytes(make([]byte, size)))
		chain, _ := hex.DecodeString(quicknetRound.ChainHash)
		randomness, _ := hex.DecodeString(quicknetRound.Randomness)
		h := sha256.New()
		h.Write([]byte("fairpact/random.v1"))
		h.Write([]byte{0})
		h.Write(chain)
		h.Write(binary.BigEndian.AppendUint64(nil, 12040883))
		h.Write(randomness)
		h.Write(digest[:])
		seed := h.Sum(nil)
		tickets := make([]string, len(nonces))
		for i := range nonces {
			sum := sha256.Sum256(binary.BigEndian.AppendUint32(append([]byte{}, seed...), uint32(i)))
			tickets[i] = hex.EncodeToString(sum[:])
		}
		for i, ticket := range tickets {
			if ticket < got.Ticket {
				t.Fatalf("the winner's ticket is %s, want the lowest: party %d has %s", got.Ticket, i, ticket)
			}
		}
		if got.Ticket != tickets[got.Winner] || got.Label != fmt.Sprintf("p%d", got.Winner) ||
			got.NonceDigest != hex.EncodeToString(digest[:]) || *got.Beacon != quicknetRound {
			t.Fatalf("got %+v, want ticket %s, nonce digest %x and the beacon %+v", got, tickets[got.Winner], digest, quicknetRound)
		}
	})
}

func TestRandomChecksTheBeacon(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(b *Beacon)
		err    string
	}{
		{"good", func(*Beacon) {}, ""},
		{"other round", func(b *Beacon) { b.Round++ }, "the pinned beacon round is 12040884, but the deal declared round 12040883"},
		{"short chain hash", func(b *Beacon) { b.ChainHash = b.ChainHash[2:] }, "chain_hash is not 64 lower-case hex digits"},
		{"upper-case randomness", func(b *Beacon) { b.Randomness = strings.ToUpper(b.Randomness) }, "randomness is not 64"},
		{"long randomness", func(b *Beacon) { b.Randomness += "00" }, "randomness is not 64"},
		{"no hex", func(b *Beacon) { b.ChainHash = strings.Repeat("xy", 32) }, "chain_hash is not 64"},
		{"no signature", func(b *Beacon) { b.Signature = "" }, "signature is not 96 lower-case hex digits"},
		{"upper-case signature", func(b *Beacon) { b.Signature = "AB" }, "signature is not 96 lower-case hex digits"},
		{"odd signature", func(b *Beacon) { b.Signature = "abc" }, "signature is not 96 lower-case hex digits"},
	} {
		b := quicknetRound
		tc.change(&b)
		_, err := randomV1.Compute(labelsN(2), map[string]any{"beacon_round": int64(12040883)}, nonceInputs([]string{"", ""}), &b)
		says(t, tc.name, err, tc.err)
	}
}
