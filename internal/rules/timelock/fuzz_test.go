package timelock_test

import (
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/timelock"
)

const fuzzRound = 1000

// A text that passes Check is the only text of its content.
func FuzzCheck(f *testing.F) {
	good := timelock.Seal(devChain, fuzzRound, []byte(plaintext), random("fuzz"))
	f.Add(good)
	for _, one := range refusedSeals(f, realSeal()) {
		f.Add(one.Seal)
	}
	key := devKey(f, fuzzRound)
	f.Fuzz(func(t *testing.T, text string) {
		sealed, err := timelock.Check(devChain, text, fuzzRound, 16<<10)
		if err != nil {
			return
		}
		if again := armored(dearmored(t, text)); again != text {
			t.Errorf("another text has the same bytes:\n%s\n%s", text, again)
		}
		if opened, err := sealed.Open(key); err == nil && text != good {
			t.Errorf("the changed seal opens to %q", opened)
		}
	})
}

// realSeal is a seal for the real round: the changes of refusedSeals name that round.
func realSeal() string { return timelock.Seal(quicknet, realRound, []byte(plaintext), random("fuzz")) }

// Bytes behind a correct armor reach the parser of the header and Open far more often than FuzzCheck
// does.
func FuzzOpen(f *testing.F) {
	good := timelock.Seal(devChain, fuzzRound, []byte(plaintext), random("fuzz"))
	f.Add(dearmored(f, good))
	for _, one := range closedSeals(f, realSeal()) {
		raw := strings.NewReplacer("12040883 "+quicknet.Hash, "1000 "+devChain.Hash).Replace(string(dearmored(f, one.Seal)))
		f.Add([]byte(raw))
	}
	key := devKey(f, fuzzRound)
	f.Fuzz(func(t *testing.T, raw []byte) {
		text := armored(raw)
		sealed, err := timelock.Check(devChain, text, fuzzRound, 1<<20)
		if err != nil {
			return
		}
		if opened, err := sealed.Open(key); err == nil && text != good {
			t.Errorf("the changed seal opens to %q", opened)
		}
	})
}

func FuzzParseOpening(f *testing.F) {
	for _, one := range openings() {
		f.Add([]byte(one.Plaintext))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if o, err := timelock.ParseOpening(text); err == nil && string(o.Plaintext()) != string(text) {
			t.Errorf("%q is another text than %q", o.Plaintext(), text)
		}
	})
}

func FuzzParseReceipt(f *testing.F) {
	f.Add(string(timelock.Receipt{Origin: origin, DealID: dealID, Commitment: commitment, SealHash: quicknet.Hash, Chain: quicknet.Hash, Round: 1}.Message()))
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := timelock.ParseReceipt(text); err == nil && string(r.Message()) != text {
			t.Errorf("%q is another text than %q", r.Message(), text)
		}
	})
}
