package timelock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// The larger size is that of a split.v1 input at its limit.
var benchSizes = []int{300, 525000}

func BenchmarkSeal(b *testing.B) {
	for _, size := range benchSizes {
		text := []byte(strings.Repeat("x", size))
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			for b.Loop() {
				timelock.Seal(quicknet, realRound, text, random("bench"))
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, size := range benchSizes {
		seal := timelock.Seal(quicknet, realRound, []byte(strings.Repeat("x", size)), random("bench"))
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := timelock.Check(quicknet, seal, realRound, len(seal)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	key := realKey(b)
	for _, size := range benchSizes {
		seal := timelock.Seal(quicknet, realRound, []byte(strings.Repeat("x", size)), random("bench"))
		sealed, err := timelock.Check(quicknet, seal, realRound, len(seal))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := sealed.Open(key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Garbage costs at most as much as a good seal.
func BenchmarkOpenGarbage(b *testing.B) {
	key, seal := realKey(b), timelock.Seal(quicknet, realRound, []byte(plaintext), random("bench"))
	sealed, err := timelock.Check(quicknet, stanza(b, seal, func(body []byte) { body[96] ^= 1 }), realRound, 4096)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := sealed.Open(key); err == nil {
			b.Fatal("garbage opens")
		}
	}
}

func BenchmarkKey(b *testing.B) {
	signature := unhex(b, realSignature)
	for b.Loop() {
		if _, err := timelock.NewKey(quicknet, realRound, signature); err != nil {
			b.Fatal(err)
		}
	}
}
