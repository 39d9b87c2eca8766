package idempotency_test

import (
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/idempotency"
)

func TestValidKey(t *testing.T) {
	for key, want := range map[string]bool{
		"": false, "a": true, "!~": true, strings.Repeat("k", 255): true, strings.Repeat("k", 256): false,
		"a b": false, " a": false, "a\t": false, "a\x00": false, "a\x7f": false, "é": false, "\xff": false,
		"6b1d7e0c-5a0e-4d7e-9d6a-0d1d4d0a7a55": true,
	} {
		if got := idempotency.ValidKey(key); got != want {
			t.Errorf("%q: %v, want %v", key, got, want)
		}
	}
}
