package secrecy

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// Every form in which a secret may hide is found.
func TestMarkerIsFound(t *testing.T) {
	m := e2e.Marker{Name: "token", Text: "it_" + base64.RawURLEncoding.EncodeToString([]byte("thirty-two bytes of a token, yes"))}
	payload, _ := base64.RawURLEncoding.DecodeString(m.Text[3:])
	for name, text := range map[string]string{
		"raw":                  "x" + m.Text + "y",
		"hex":                  "x" + hex.EncodeToString([]byte(m.Text)),
		"upper-case hex":       strings.ToUpper(hex.EncodeToString([]byte(m.Text))),
		"payload":              "x" + string(payload) + "y",
		"payload in a bytea":   `\x00` + hex.EncodeToString(payload),
		"base64 in a bytea":    hex.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(m.Text)))),
		"base64":               base64.StdEncoding.EncodeToString([]byte(m.Text)),
		"base64 at offset 1":   base64.StdEncoding.EncodeToString([]byte("a" + m.Text + "bc")),
		"base64 at offset 2":   base64.URLEncoding.EncodeToString([]byte("ab" + m.Text + "c")),
		"base64 of a document": base64.StdEncoding.EncodeToString([]byte(`{"token":"` + m.Text + `"}`)),
	} {
		if len(m.ShownIn(map[string][]byte{name: []byte(text)})) == 0 {
			t.Errorf("the token is not found in %s: %s", name, text)
		}
	}
	other := e2e.Marker{Name: "another", Text: "it_" + base64.RawURLEncoding.EncodeToString([]byte("thirty-two bytes of a token, no!"))}
	if found := other.ShownIn(map[string][]byte{"raw": []byte(m.Text)}); found != nil {
		t.Error("another token is found as well")
	}
}
