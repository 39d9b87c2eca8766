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

func TestSecretsOpenInputsOfEachSecret(t *testing.T) {
	old, next, stranger := secretOf(t, 1), secretOf(t, 2), secretOf(t, 3)
	s := secretsOf(t, next, old)
	for _, writer := range []*Secret{old, next} {
		for _, marked := range []bool{false, true} {
			s.Use(writer, marked)
			sealed := s.Writer().SealInput("d_1", 1, anInput)
			if got := s.Writer().Marked(sealed); got != marked {
				t.Errorf("input sealed under %s: marked %v, want %v", writer.ID(), got, marked)
			}
			if got, err := s.OpenInput("d_1", 1, sealed); err != nil || !same(got, anInput) {
				t.Errorf("OpenInput, sealed under %s, marked %v: got %v, %v; want %v", writer.ID(), marked, got, err, anInput)
			}
			if _, err := s.OpenInput("d_1", 0, sealed); err == nil {
				t.Errorf("the input of party 1, sealed under %s, opens for party 0, want an error", writer.ID())
			}
			if _, err := secretsOf(t, stranger).OpenInput("d_1", 1, sealed); err == nil || strings.Contains(err.Error(), writer.ID()) != marked {
				t.Errorf("a set without the secret: got error %v; want one that names %s: %v", err, writer.ID(), marked)
			}
		}
	}
}

// A mark at the beginning of a sealed input names its secret. The previous release can open an input without a mark.
func TestWithoutAMarkTheFormIsUnchanged(t *testing.T) {
	old := secretOf(t, 1)
	s := secretsOf(t, old)
	sealed := s.Writer().SealInput("d_1", 1, anInput)
	if plain, err := old.inputs.Open(nil, nil, sealed, additionalData("d_1", 1)); err != nil || len(plain) == 0 {
		t.Errorf("opened as the previous release does: got %q, %v; want the input", plain, err)
	}
}

func TestAnInputThatBeginsLikeAMark(t *testing.T) {
	s := secretOf(t, 1)
	sealed := s.SealInput("d_1", 1, anInput)
	s.mark = bytes.Clone(sealed[:8])
	if got, err := s.OpenInput("d_1", 1, sealed); err != nil || !same(got, anInput) {
		t.Fatalf("OpenInput = %v, %v; want %v", got, err, anInput)
	}
}

func TestDigestIdentifiesTheSet(t *testing.T) {
	one, two := secretOf(t, 1), secretOf(t, 2)
	if a, b := secretsOf(t, one, two).Digest(), secretsOf(t, two, one).Digest(); a != b || len(a) != 8 {
		t.Errorf("the digests of a set in two orders are %s and %s, want the same 8 digits", a, b)
	}
	if secretsOf(t, one).Digest() == secretsOf(t, two).Digest() || secretsOf(t, one).Digest() == secretsOf(t, one, two).Digest() {
		t.Error("two sets have the same digest")
	}
	if _, err := NewSecrets(one, secretOf(t, 1)); err == nil {
		t.Error("NewSecrets with a secret twice: got no error, want one")
	}
}

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
				t.Errorf("the verb %s shows %s, want %s", verb, got, want)
			}
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "holder", holder)
	if !strings.Contains(log.String(), `"{Secret:sealing.Secret Value:sealing.Secret All:sealing.Secrets}"`) {
		t.Errorf("the log shows %s, want only the type names", &log)
	}
	if text, err := json.Marshal(holder); err != nil || string(text) != `{"Secret":{},"Value":{},"All":{}}` {
		t.Errorf("json.Marshal = %s, %v; want empty objects", text, err)
	}
}
