package signing

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	for uri, want := range map[string]string{
		"":                                     "dev://PATH",
		"key.pem":                              "file://PATH",
		"vault://secret-1234":                  "dev://PATH",
		"pkcs11:token=x?pin-value=secret-1234": "pin-source=file:/path",
		"gcpkms://":                            "cryptoKeyVersions/N",
		"secret-1234 ://x":                     "no scheme",
		"FILE:///x":                            "no scheme",
		"file:":                                "file://PATH",
		"file://":                              "file://PATH",
		"file:/etc/key.pem":                    "file://PATH",
		"dev://":                               "dev://PATH",
		"file://" + dir:                        "not a regular file",
		"file://" + dir + "/missing.pem":       "no such file",
		"dev://" + dir:                         "not a regular file",
	} {
		_, err := Open(t.Context(), uri)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret-1234") {
			t.Errorf("Open(%q): error %q; want one with %q and without what follows the scheme", uri, err, want)
		}
	}
}

// A key that is good and is not the published one stops the start; the message
// names both keys, the custody and what to correct.
func TestStartWithAnotherKeyThanThePublished(t *testing.T) {
	published := newDev(t).PublicKey()
	uri := "dev://" + t.TempDir() + "/key.pem"
	held := mustOpen(t, uri)
	document := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(document, []byte(`{"keys":[{"pubkey":"`+published+`","uri":"`+uri+`","signs_from":0}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, settings := range map[string]Settings{
		"FAIRPACT_SIGNING_KEY is not the key of FAIRPACT_PUBLIC_KEY": {SigningKey: uri, PublicKey: published},
		"FAIRPACT_KEY_SET_FILE: " + document:                         {KeySetFile: document},
	} {
		_, _, err := settings.Open(t.Context(), slog.New(slog.DiscardHandler))
		if err == nil {
			t.Fatalf("%s: started", what)
		}
		for _, part := range []string{what, held.Custody(), held.PublicKey(), published, "correct "} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v\nwants %q", err, part)
			}
		}
	}
}
