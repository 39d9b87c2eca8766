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
		s.Use(writer)
		sealed := s.Writer().SealInput("d_1", 1, anInput)
		if got, err := writer.OpenInput("d_1", 1, sealed); err != nil || !same(got, anInput) {
			t.Errorf("opened under %s, the secret in use: got %v, %v; want %v", writer.ID(), got, err, anInput)
		}
		if got, err := s.OpenInput("d_1", 1, sealed); err != nil || !same(got, anInput) {
			t.Errorf("OpenInput, sealed under %s: got %v, %v; want %v", writer.ID(), got, err, anInput)
		}
		if _, err := secretsOf(t, stranger).OpenInput("d_1", 1, sealed); err == nil {
			t.Errorf("a set without the secret %s opens the input, want an error", writer.ID())
		}
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
