package timelock_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

var (
	dev      = devbeacon.New([]byte("timelock"))
	devChain = dev.Chain()
)

func devKey(t interface{ Fatal(...any) }, round int64) timelock.Key {
	key, err := timelock.NewKey(devChain, round, dev.Sign(round))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func draw[T any](t *rapid.T, g *rapid.Generator[T], name string) T { return g.Draw(t, name) }

func drawRandom(t *rapid.T) timelock.Random {
	return timelock.Random(draw(t, rapid.SliceOfN(rapid.Byte(), 48, 48), "random"))
}

// Every seal passes Check and opens, for every size around the limits of the chunks.
func TestSealOpens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		round := draw(t, rapid.Int64Range(1, drand.MaxRound), "round")
		size := draw(t, rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(65500, 65600), rapid.IntRange(131000, 131100)), "size")
		text := bytes.Repeat([]byte{draw(t, rapid.Byte(), "byte")}, size)
		seal := timelock.Seal(devChain, round, text, drawRandom(t))
		sealed, err := timelock.Check(devChain, seal, round, len(seal))
		if err != nil {
			t.Fatal(err)
		}
		if opened, err := sealed.Open(devKey(t, round)); err != nil || !bytes.Equal(opened, text) {
			t.Errorf("opened %d bytes, %v; want %d", len(opened), err, size)
		}
	})
}

// Any change of one byte is refused by Check or by Open. The test changes every byte of the text, and
// every byte inside the armor.
func TestOneChangedByteNeverOpens(t *testing.T) {
	const round = 1000
	seal := timelock.Seal(devChain, round, []byte(plaintext), random("one byte"))
	key := devKey(t, round)
	tries, opened := 0, 0
	try := func(forged string) {
		tries++
		sealed, err := timelock.Check(devChain, forged, round, 4096)
		if err != nil {
			if !errors.Is(err, timelock.ErrSeal) {
				t.Errorf("Check: %v, want ErrSeal", err)
			}
			return
		}
		opened++
		if got, err := sealed.Open(key); !errors.Is(err, timelock.ErrNotOpened) || got != nil {
			t.Fatalf("it opens to %q, %v\n%s", got, err, forged)
		}
	}
	for i := range len(seal) {
		for _, b := range []byte{seal[i] ^ 1, seal[i] ^ 0x20, 'A', '\n'} {
			if b != seal[i] {
				try(seal[:i] + string(rune(b&0x7f)) + seal[i+1:])
			}
		}
	}
	raw := dearmored(t, seal)
	for i := range raw {
		for bit := range 8 {
			forged := bytes.Clone(raw)
			forged[i] ^= 1 << bit
			try(armored(forged))
		}
	}
	if opened < 500 {
		t.Errorf("only %d of %d changes reached Open", opened, tries)
	}
}

func TestCopiedSealOpensForNobodyElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := timelock.Opening{DealID: dealID, Party: draw(t, rapid.Int64Range(0, 9999), "party"), Input: map[string]any{"accept": true}, Salt: draw(t, rapid.StringN(0, 20, 100), "salt")}
		parsed, err := timelock.ParseOpening(o.Plaintext())
		if err != nil {
			t.Fatal(err)
		}
		commitment := canon.Commitment(canon.Encode(o.Input), []byte(o.Salt))
		if _, _, err := parsed.Reveal(dealID, o.Party, commitment); err != nil {
			t.Error(err)
		}
		for _, err := range []error{
			second(parsed.Reveal(dealID, o.Party+1, commitment)), second(parsed.Reveal("d_OTHER", o.Party, commitment)),
			second(parsed.Reveal(dealID, o.Party, "sha256:"+strings.Repeat("0", 64))),
		} {
			if !errors.Is(err, timelock.ErrOpening) {
				t.Errorf("Reveal: %v, want ErrOpening", err)
			}
		}
	})
}

func second(_, _ []byte, err error) error { return err }

// Only the verified signature of the very round makes a key, and the key of one round or chain opens
// no seal of another.
func TestKeys(t *testing.T) {
	const round = 1000
	signature := dev.Sign(round)
	infinity := append([]byte{0xc0}, make([]byte, 47)...)
	for name, forged := range map[string][]byte{
		"nothing": nil, "one byte short": signature[:47], "one byte long": append(bytes.Clone(signature), 0), "infinity": infinity,
		"the next round": dev.Sign(round + 1), "another chain": devbeacon.New([]byte("other")).Sign(round), "zeros": make([]byte, 48), "ones": bytes.Repeat([]byte{0xff}, 48),
	} {
		if key, err := timelock.NewKey(devChain, round, forged); !errors.Is(err, drand.ErrBadSignature) || key != (timelock.Key{}) {
			t.Errorf("%s: %v, want ErrBadSignature and no key", name, err)
		}
	}
	for i := range signature {
		forged := bytes.Clone(signature)
		forged[i] ^= 1
		if _, err := timelock.NewKey(devChain, round, forged); !errors.Is(err, drand.ErrBadSignature) {
			t.Errorf("byte %d changed: %v, want ErrBadSignature", i, err)
		}
	}
	for _, bad := range []int64{math.MinInt64, 0, round + 1, drand.MaxRound + 1} {
		if _, err := timelock.NewKey(devChain, bad, signature); err == nil {
			t.Errorf("round %d: accepted", bad)
		}
	}
	seal := timelock.Seal(devChain, round, []byte("x"), random("keys"))
	sealed, err := timelock.Check(devChain, seal, round, 4096)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range []timelock.Key{{}, devKey(t, round+1), realKey(t)} {
		if _, err := sealed.Open(key); !errors.Is(err, timelock.ErrNotOpened) {
			t.Errorf("Open with key %d: %v, want ErrNotOpened", i, err)
		}
	}
}

// RoundOf returns the first round at or after commit_deadline + 60 s.
func TestRoundOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drand.Quicknet()
		period, genesis := draw(t, rapid.Int64Range(1, math.MaxUint32), "period"), draw(t, rapid.Int64Range(0, 1<<40), "genesis")
		c, err := drand.ParseChain(b.Hash, hex.EncodeToString(b.PublicKey), period, genesis)
		if err != nil {
			t.Fatal(err)
		}
		deadline := draw(t, rapid.Int64Range(0, canon.MaxInt), "deadline")
		round := timelock.RoundOf(c, deadline)
		if round < 1 || c.RoundTime(round) < deadline+60 || round > 1 && c.RoundTime(round-1) >= deadline+60 {
			t.Errorf("round %d is due at %d, want the first round at or after %d", round, c.RoundTime(round), deadline+60)
		}
		if err := timelock.CheckDeadlines(c, deadline, c.RoundTime(round)+60); err != nil {
			t.Error(err)
		}
		if err := timelock.CheckDeadlines(c, deadline, c.RoundTime(round)+59); err == nil {
			t.Error("59 s after the round are accepted as room, want 60")
		}
	})
}

func TestReceipt(t *testing.T) {
	seal := timelock.Seal(quicknet, realRound, []byte(plaintext), random("receipt"))
	r := timelock.Receipt{Origin: origin, DealID: dealID, Party: 3, Commitment: commitment, SealHash: timelock.Hash(seal), Chain: quicknet.Hash, Round: realRound, Time: quicknet.RoundTime(realRound) - 1}
	text := string(r.Message())
	parsed, err := timelock.ParseReceipt(text)
	if err != nil || parsed != r {
		t.Fatalf("ParseReceipt: %+v, %v; want %+v", parsed, err, r)
	}
	if err := r.Matches(quicknet, seal); err != nil {
		t.Error(err)
	}
	late := r
	late.Time++
	for name, err := range map[string]error{
		"another seal": r.Matches(quicknet, seal+"x"), "another chain": r.Matches(devChain, seal), "at the time of the round": late.Matches(quicknet, seal),
	} {
		if err == nil {
			t.Errorf("%s: the receipt matches", name)
		}
	}
	for _, change := range [][2]string{
		{"receipt v1", "receipt v2"}, {"https:", "ftp:"}, {dealID, ""}, {dealID, "d EXAMPLE"}, {"\n3\n", "\n03\n"}, {"\n3\n", "\n-3\n"}, {"\n3\n", "\n+3\n"},
		{"sha256:", ""}, {"sha256:f6", "sha256:F6"}, {quicknet.Hash, quicknet.Hash[1:]}, {r.SealHash, ""}, {"12040883", "0"}, {"12040883", "99999999999999999"},
		{"\n", "\r\n"}, {"\n", "\n\n"}, {"\n3\n", "\n3\n3\n"},
	} {
		forged := strings.Replace(text, change[0], change[1], 1)
		if _, err := timelock.ParseReceipt(forged); err == nil || forged == text {
			t.Errorf("%q instead of %q: accepted", change[1], change[0])
		}
	}
	if _, err := timelock.ParseReceipt(text[:len(text)-1]); err == nil {
		t.Error("a receipt without the last line feed is accepted")
	}
}

// Two different statements have different texts, and so do two orders of the same parties.
func TestClosing(t *testing.T) {
	a, b := timelock.ClosedCommitment{Commitment: commitment, SealHash: strings.Repeat("0a", 32)}, timelock.ClosedCommitment{Commitment: commitment}
	c := timelock.Closing{DealID: dealID, Declaration: strings.Repeat("0b", 32), Chain: quicknet.Hash, Round: realRound}
	seen := map[[32]byte]bool{}
	for _, commitments := range [][]timelock.ClosedCommitment{nil, {a}, {b}, {a, b}, {b, a}, {a, a}, {a, b, b}} {
		c.Commitments = commitments
		seen[c.Entry()] = true
	}
	c.Round++
	seen[c.Entry()] = true
	if len(seen) != 8 {
		t.Errorf("8 statements have %d entries", len(seen))
	}
	for entry := range seen {
		if mark := timelock.Mark(dealID); !bytes.HasPrefix(entry[:], mark[:]) {
			t.Errorf("the entry %x does not begin with the mark %x of its deal", entry, mark)
		}
	}
}
