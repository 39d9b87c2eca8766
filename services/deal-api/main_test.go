package main

import (
	"strings"
	"testing"
)

func TestTrustedProxiesAreNamed(t *testing.T) {
	if got, err := networks([]string{"10.0.0.0/8", "2001:db8::/32"}); err != nil || len(got) != 2 {
		t.Errorf("two networks: %v, %v", got, err)
	}
	for text, want := range map[string]string{
		"0.0.0.0/0": "every address", "::/0": "every address", "999.0.0.1/8": "is not a network", "10.0.0.1": "is not a network",
	} {
		if _, err := networks([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
