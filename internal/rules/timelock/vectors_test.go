package timelock_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

var update = flag.Bool("update", false, "write the shared vectors again")

// This package, the independent verifier (e2e/verifier) and the pages share these vectors.
const vectorsFile = "../../../e2e/testdata/timelock.json"

type vectors struct {
	Chain     chainVector     `json:"chain"`
	Round     int64           `json:"round"`
	Signature string          `json:"signature"`
	Foreign   []foreignVector `json:"foreign"`
	Own       []ownVector     `json:"own"`
	Refused   []sealVector    `json:"refused"`    // texts that Check refuses
	NotOpened []sealVector    `json:"not_opened"` // texts that Check accepts and Open refuses
	Rounds    [][2]int64      `json:"rounds"`     // pairs of commit_deadline and round
	Openings  []openingVector `json:"openings"`
	Receipt   receiptVector   `json:"receipt"`
	Closing   closingVector   `json:"closing"`
}

type chainVector struct {
	Hash      string `json:"chain_hash"`
	PublicKey string `json:"public_key"`
	Genesis   int64  `json:"genesis_time"`
	Period    int64  `json:"period"`
}

type foreignVector struct {
	By        string `json:"by"`
	Seal      string `json:"seal"`
	Plaintext string `json:"plaintext"`
}

// ownVector is a seal that this package makes. The plaintext is Text, repeated Times times.
type ownVector struct {
	Random string `json:"random"` // file key, sigma and nonce of the payload, in hex
	Text   string `json:"text"`
	Times  int    `json:"times"`
	Seal   string `json:"seal,omitempty"` // left out if it is long
	SHA256 string `json:"seal_sha256"`
}

type sealVector struct {
	What string `json:"what"`
	Seal string `json:"seal"`
}

// openingVector says whether a plaintext is the opening of a party's commitment.
type openingVector struct {
	What       string `json:"what"`
	Plaintext  string `json:"plaintext"`
	DealID     string `json:"deal_id"`
	Party      int64  `json:"party"`
	Commitment string `json:"commitment"`
	OK         bool   `json:"ok"`
}

type receiptVector struct {
	Text      string `json:"text"`
	PublicKey string `json:"pubkey"`
	Signature string `json:"signature"`
}

type closingVector struct {
	Text  string `json:"text"`
	Entry string `json:"entry"`
}

// These values are a round that quicknet's relays served.
const (
	realRound     = 12040883
	realSignature = "929906c959032ab363c9f26570d215d66f5c06cb0c44fe508c12bb5839f04ec895bb6868e5b9ff13ab289bdb5266b394"
)

var quicknet = drand.Quicknet()

func unhex(t testing.TB, digits string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func realKey(t testing.TB) timelock.Key {
	t.Helper()
	key, err := timelock.NewKey(quicknet, realRound, unhex(t, realSignature))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// random returns fixed bytes in place of random ones.
func random(seed string) timelock.Random {
	var r timelock.Random
	sum := sha256.Sum256([]byte(seed))
	copy(r[:], sum[:])
	sum = sha256.Sum256(sum[:])
	copy(r[32:], sum[:])
	return r
}

const (
	dealID     = "d_EXAMPLE"
	origin     = "https://fairpact.example.com"
	inputText  = `{"valuations":{"boat":30,"car":70}}`
	salt       = "8f14e45fceea167a5a36dedd4bea2543"
	commitment = "sha256:f62a7f8729d652d68f8ba0f392d16e5e94f4fb9bcd39c2cb704cbdf0e9cb4b7a"
	plaintext  = `{"deal_id":"` + dealID + `","input":` + inputText + `,"party":0,"salt":"` + salt + `"}`
)

func made(t *testing.T) (v vectors) {
	b := drand.Quicknet()
	v.Chain = chainVector{b.Hash, hex.EncodeToString(b.PublicKey), b.Genesis, b.Period}
	v.Round, v.Signature = realRound, realSignature
	v.Foreign = foreign(t)
	for i, text := range []string{plaintext, "", "é😀\n", strings.Repeat("x", 1<<16), strings.Repeat("0123456789abcdef", 1<<12) + "0", strings.Repeat("x", 525000)} {
		own := ownVector{Text: text, Times: 1}
		if len(text) > 1000 {
			own.Text, own.Times = text[:16], len(text)/16
			if rest := len(text) % 16; rest > 0 {
				own.Text, own.Times = "x", len(text)
			}
		}
		r := random(fmt.Sprint("own ", i))
		own.Random = hex.EncodeToString(r[:])
		seal := timelock.Seal(quicknet, realRound, []byte(strings.Repeat(own.Text, own.Times)), r)
		if own.SHA256 = timelock.Hash(seal); len(seal) < 2000 {
			own.Seal = seal
		}
		v.Own = append(v.Own, own)
	}
	v.Refused, v.NotOpened = refusedSeals(t, v.Own[0].Seal), closedSeals(t, v.Own[0].Seal)
	for _, deadline := range []int64{0, b.Genesis - 61, b.Genesis - 60, b.Genesis - 59, b.Genesis - 57, 1900003600, 1900003601, 1900003602, 1900003603, canon.MaxInt} {
		v.Rounds = append(v.Rounds, [2]int64{deadline, timelock.RoundOf(quicknet, deadline)})
	}
	v.Openings = openings()
	receipt := timelock.Receipt{Origin: origin, DealID: dealID, Commitment: commitment, SealHash: v.Own[0].SHA256, Chain: b.Hash, Round: realRound, Time: quicknet.RoundTime(realRound) - 90}
	v.Receipt = signed(t, receipt.Message())
	closing := timelock.Closing{DealID: dealID, Declaration: strings.Repeat("0a", 32), Chain: b.Hash, Round: realRound,
		Commitments: []timelock.ClosedCommitment{{Commitment: commitment, SealHash: v.Own[0].SHA256}, {Commitment: "sha256:" + strings.Repeat("e9", 32)}}}
	entry := closing.Entry()
	v.Closing = closingVector{string(closing.Text()), hex.EncodeToString(entry[:])}
	return v
}

// foreign returns seals that tlock-js 0.9.0 and drand/tlock made for the real round.
func foreign(t *testing.T) (all []foreignVector) {
	lines, err := os.ReadFile("testdata/tlockjs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(lines) {
		one := foreignVector{By: "tlock-js 0.9.0"}
		if err := json.Unmarshal(line, &one.Seal); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	text, err := os.ReadFile("testdata/quicknet-12040883.age")
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, foreignVector{By: "drand/tlock", Seal: string(text)})
	for i := range all {
		sealed, err := timelock.Check(quicknet, all[i].Seal, realRound, 4096)
		if err != nil {
			t.Fatalf("seal %d by %s: %v", i, all[i].By, err)
		}
		opened, err := sealed.Open(realKey(t))
		if err != nil {
			t.Fatalf("seal %d by %s: %v", i, all[i].By, err)
		}
		all[i].Plaintext = string(opened)
	}
	return all
}

// signed signs a message with a fixed key, in the form of package keys: r‖s with the smaller s.
func signed(t *testing.T, message []byte) receiptVector {
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte("seal"), 8))
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(message)
	der, err := key.Sign(nil, digest[:], crypto.SHA256) // deterministic (RFC 6979) without a source of randomness
	if err != nil {
		t.Fatal(err)
	}
	signature, err := keys.FromDER(der)
	if err != nil {
		t.Fatal(err)
	}
	label, err := keys.Label(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return receiptVector{string(message), label, signature}
}

func TestVectors(t *testing.T) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(made(t)); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(vectorsFile, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(vectorsFile)
	if err != nil || !bytes.Equal(stored, b.Bytes()) {
		t.Errorf("%s is not what the code makes (%v); -update writes it", vectorsFile, err)
	}
}
