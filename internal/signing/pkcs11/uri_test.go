package pkcs11

import (
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

func TestBuiltWithoutPKCS11(t *testing.T) {
	defer func(built func(address, provider.Kind) provider.Provider) { newProvider = built }(newProvider)
	newProvider = nil
	_, err := Open(t.Context(), "token=t;object=k?module-path=/lib/x.so&pin-source=file:/run/pin", provider.P256)
	if err == nil || !strings.Contains(err.Error(), "-tags pkcs11") {
		t.Errorf("Open: %v, want an error that names the build", err)
	}
}

func TestPKCS11URI(t *testing.T) {
	got, err := parse("token=My%20token;object=a%3Bb;id=%01%ff;serial=12;type=private?module-path=/lib/x.so&pin-source=file:/run/pin")
	want := address{token: "My token", object: "a;b", id: "\x01\xff", serial: "12", module: "/lib/x.so", pinFile: "/run/pin"}
	if err != nil || got != want {
		t.Errorf("parsed URI %+v, %v; want %+v", got, err, want)
	}
	const query = "?module-path=/lib/x.so&pin-source=file:///run/pin"
	if got, err := parse("token=t;id=%01" + query); err != nil || got.pinFile != "/run/pin" {
		t.Errorf("parsed URI with id=%%01: %+v, %v; want its PIN file", got, err)
	}
	for uri, want := range map[string]string{
		"object=k" + query:                                                      "names no token",
		"token=t" + query:                                                       "names no key",
		"token=t;object=k":                                                      "module-path",
		"token=t;object=k;type=cert" + query:                                    "type",
		"token=t;object=k;token=u" + query:                                      "token twice",
		"token=t;object=k;slot-id=0" + query:                                    "unknown",
		"token=t;object=%4" + query:                                             "object",
		"token=t;secret-1234" + query:                                           "'='",
		"token=t;object=k?module-path=x.so&pin-source=/run/pin":                 "module-path",
		"token=t;object=k?module-path=/x.so":                                    "pin-source",
		"token=t;object=k?module-path=/x.so&pin-source=|secret-1234":            "pin-source",
		"token=t;object=k?module-path=/x.so&pin-value=secret-1234":              "into a file",
		"token=t;object=k;pin-value=secret-1234" + query:                        "into a file",
		"token=t;object=k?module-path=/x.so&pin-source=/p&secret-1234=x":        "unknown",
		"token=t;object=k?module-path=/x.so&pin-source=/p&pin-source=%secret-1": "pin-source twice",
	} {
		_, err := parse(uri)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret-1") {
			t.Errorf("parse(%q): %v, want an error with %q and without values", uri, err, want)
		}
	}
}
