package sealing

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func secretsOf(t testing.TB, all ...*Secret) *Secrets {
	t.Helper()
	s, err := NewSecrets(all...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var anInput = Input{Canonical: []byte(`{"a":1}`), Salt: "salt", SaltBytes: []byte("salt")}

// A set opens what any of its secrets sealed, marked or not, and nothing else.
func TestSecretsOpenWhatAnyOfThemSealed(t *testing.T) {
	old, next, stranger := secretOf(t, 1), secretOf(t, 2), secretOf(t, 3)
	s := secretsOf(t, next, old)
	for _, writer := range []*Secret{old, next} {
		for _, marked := range []bool{false, true} {
			s.Use(writer, marked)
			sealed := s.Writer().SealInput("d_1", 1, anInput)
			if got := s.Writer().Marked(sealed); got != marked {
				t.Errorf("an input is marked: %v, want %v", got, marked)
			}
			if got, err := s.OpenInput("d_1", 1, sealed); err != nil || !same(got, anInput) {
				t.Errorf("%s, marked %v: opens to %v, %v", writer.ID(), marked, got, err)
			}
			if _, err := s.OpenInput("d_1", 0, sealed); err == nil {
				t.Error("it opens at another place")
			}
			if _, err := secretsOf(t, stranger).OpenInput("d_1", 1, sealed); err == nil || strings.Contains(err.Error(), writer.ID()) != marked {
				t.Errorf("another set: %v; it names %s: want %v", err, writer.ID(), marked)
			}
		}
	}
}

// Without a mark an input has the form of the release before.
func TestWithoutAMarkNothingChanges(t *testing.T) {
	old := secretOf(t, 1)
	s := secretsOf(t, old)
	sealed := s.Writer().SealInput("d_1", 1, anInput)
	if plain, err := old.inputs.Open(nil, nil, sealed, place("d_1", 1)); err != nil || len(plain) == 0 {
		t.Errorf("%v", err)
	}
	allocs := testing.AllocsPerRun(100, func() { _ = s.Writer().SealInput("d_1", 1, anInput) })
	s.Use(old, true)
	if marked := testing.AllocsPerRun(100, func() { _ = s.Writer().SealInput("d_1", 1, anInput) }); marked > allocs {
		t.Errorf("%.0f allocations with a mark, %.0f without", marked, allocs)
	}
}

// A ciphertext that begins like a mark, by chance, opens all the same.
func TestAnInputThatBeginsLikeAMark(t *testing.T) {
	old := secretOf(t, 1)
	begins := *old
	for n := 0; ; n++ {
		sealed := old.SealInput("d_1", 1, anInput)
		begins.mark = bytes.Clone(sealed[:8])
		if got, err := begins.OpenInput("d_1", 1, sealed); err != nil || !same(got, anInput) {
			t.Fatalf("opens to %v, %v", got, err)
		}
		if n == 10 {
			return
		}
	}
}

func TestSetsAreNamedWhateverTheirOrder(t *testing.T) {
	one, two := secretOf(t, 1), secretOf(t, 2)
	if a, b := secretsOf(t, one, two).Digest(), secretsOf(t, two, one).Digest(); a != b || len(a) != 8 {
		t.Errorf("%s and %s", a, b)
	}
	if secretsOf(t, one).Digest() == secretsOf(t, two).Digest() || secretsOf(t, one).Digest() == secretsOf(t, one, two).Digest() {
		t.Error("two sets have one name")
	}
	if _, err := NewSecrets(one, secretOf(t, 1)); err == nil {
		t.Error("a set holds a secret twice")
	}
}

func TestSecretsNeverPrint(t *testing.T) {
	s := secretsOf(t, secretOf(t, 7))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		if got := fmt.Sprintf(verb, s); got != "sealing.Secrets" {
			t.Errorf("%s shows %s", verb, got)
		}
	}
}
