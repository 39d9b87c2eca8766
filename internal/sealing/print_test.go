package sealing

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// Secret MUST NOT be logged: whatever is done to write it shows nothing.
func TestSecretNeverPrints(t *testing.T) {
	s := secretOf(t, 7)
	holder := struct {
		Secret *Secret
		Value  Secret
	}{s, *s}
	written := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%U", "%t", "%e"} {
		for what, v := range map[string]any{"pointer": s, "value": *s, "holder": holder, "list": []*Secret{s}} {
			written[verb+" of a "+what] = fmt.Sprintf(verb, v)
		}
	}
	for what, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"text log": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"JSON log": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var b bytes.Buffer
		slog.New(handler(&b)).Info("x", "secret", s, "value", *s, "holder", holder)
		written[what] = b.String()
	}
	text, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	written["JSON"] = string(text)

	for what, got := range written {
		for name, key := range map[string][]byte{"root": s.root, "mac": s.mac, "secret": bytes.Repeat([]byte{7}, 32)} {
			// Two bytes in a row, however they are written, are no accident.
			for _, form := range []string{
				string(key), hex.EncodeToString(key[:4]), fmt.Sprintf("%d %d", key[0], key[1]), fmt.Sprintf("%d,%d", key[0], key[1]),
				fmt.Sprintf("%#x, %#x", key[0], key[1]), fmt.Sprintf("%o %o", key[0], key[1]), fmt.Sprintf("%b %b", key[0], key[1]),
				fmt.Sprintf("%U %U", key[0], key[1]), fmt.Sprintf("%c %c", key[0], key[1]),
			} {
				if strings.Contains(strings.ToLower(got), strings.ToLower(form)) {
					t.Errorf("%s shows the %s key", what, name)
				}
			}
		}
	}
}
