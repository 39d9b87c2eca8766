package service

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReadSecrets(t *testing.T) {
	one, two := strings.Repeat("a", 16), strings.Repeat("b c ", 8)
	path := filepath.Join(t.TempDir(), "secret")
	for text, want := range map[string][]string{
		one: {one}, one + "\n": {one}, one + "\r\n" + two + "\n\n": {one, strings.TrimSpace(two)},
		"": nil, "\n": nil, one[1:]: nil, one + "\nshort": nil, one + "\n\n" + one: nil,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadSecrets("SETTING", path)
		if (err == nil) != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "SETTING") || strings.Contains(err.Error(), one[:8])) {
			t.Errorf("%v: it names the setting, and shows no secret", err)
		}
	}
}
