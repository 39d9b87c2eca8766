package sealing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
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

// A set opens the inputs that any of its secrets sealed, with or without a mark.
func TestSecretsOpenInputsOfEachSecret(t *testing.T) {
	old, next, stranger := secretOf(t, 1), secretOf(t, 2), secretOf(t, 3)
	s := secretsOf(t, next, old)
	for _, writer := range []*Secret{old, next} {
		for _, marked := range []bool{false, true} {
			s.Use(writer, marked)
			sealed := s.Writer().SealInput("d_1", 1, anInput)
			if got := s.Writer().Marked(sealed); got != marked {
				t.Errorf("marked: %v, want %v", got, marked)
			}
			if got, err := s.OpenInput("d_1", 1, sealed); err != nil || !same(got, anInput) {
				t.Errorf("%s, marked %v: opens to %v, %v", writer.ID(), marked, got, err)
			}
			if _, err := s.OpenInput("d_1", 0, sealed); err == nil {
				t.Error("it opens for another party")
			}
			if _, err := secretsOf(t, stranger).OpenInput("d_1", 1, sealed); err == nil || strings.Contains(err.Error(), writer.ID()) != marked {
				t.Errorf("another set: %v; want that it names %s: %v", err, writer.ID(), marked)
			}
		}
	}
}

// The previous release can open an input without a mark.
func TestWithoutAMarkTheFormIsUnchanged(t *testing.T) {
	old := secretOf(t, 1)
	s := secretsOf(t, old)
	sealed := s.Writer().SealInput("d_1", 1, anInput)
	if plain, err := old.inputs.Open(nil, nil, sealed, place("d_1", 1)); err != nil || len(plain) == 0 {
		t.Errorf("%v", err)
	}
}

// An input without a mark opens even if it happens to begin with the mark's bytes.
func TestAnInputThatBeginsLikeAMark(t *testing.T) {
	s := secretOf(t, 1)
	sealed := s.SealInput("d_1", 1, anInput)
	s.mark = bytes.Clone(sealed[:8])
	if got, err := s.OpenInput("d_1", 1, sealed); err != nil || !same(got, anInput) {
		t.Fatalf("opens to %v, %v", got, err)
	}
}

func TestDigestIdentifiesTheSet(t *testing.T) {
	one, two := secretOf(t, 1), secretOf(t, 2)
	if a, b := secretsOf(t, one, two).Digest(), secretsOf(t, two, one).Digest(); a != b || len(a) != 8 {
		t.Errorf("%s and %s", a, b)
	}
	if secretsOf(t, one).Digest() == secretsOf(t, two).Digest() || secretsOf(t, one).Digest() == secretsOf(t, one, two).Digest() {
		t.Error("two sets have the same digest")
	}
	if _, err := NewSecrets(one, secretOf(t, 1)); err == nil {
		t.Error("a set with a secret twice is accepted")
	}
}

// MUST NOT be logged: no verb, logger or encoder shows anything of a secret.
func TestSecretsNeverPrint(t *testing.T) {
	one := secretOf(t, 7)
	holder := struct {
		Secret *Secret
		Value  Secret
		All    *Secrets
	}{one, *one, secretsOf(t, one)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%U", "%t", "%e"} {
		for want, v := range map[string]any{"sealing.Secret": one, "[sealing.Secret]": []Secret{*one}, "sealing.Secrets": holder.All} {
			if got := fmt.Sprintf(verb, v); got != want && verb != "%#v" || !strings.Contains(got, strings.Trim(want, "[]")) || len(got) > 40 {
				t.Errorf("%s shows %s, want %s", verb, got, want)
			}
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "holder", holder)
	if !strings.Contains(log.String(), `"{Secret:sealing.Secret Value:sealing.Secret All:sealing.Secrets}"`) {
		t.Errorf("a log shows %s", &log)
	}
	if text, err := json.Marshal(holder); err != nil || string(text) != `{"Secret":{},"Value":{},"All":{}}` {
		t.Errorf("JSON shows %s, %v", text, err)
	}
}
