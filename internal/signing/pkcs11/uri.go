// Package pkcs11 signs with a key that stays in a PKCS#11 token. It needs cgo and
// the build tag pkcs11; without them Open returns an error.
package pkcs11

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

// newProvider is nil if this build has no PKCS#11.
var newProvider func(address, provider.Kind) provider.Provider

// Open returns the provider of the key that a PKCS#11 URI names. rest is the URI without "pkcs11:". Open
// does not use the token; Key and Sign do.
func Open(_ context.Context, rest string, kind provider.Kind) (provider.Provider, error) {
	at, err := parse(rest)
	if err == nil && newProvider == nil {
		err = errors.New("this binary was built without PKCS#11: build with -tags pkcs11 and CGO_ENABLED=1")
	}
	if err != nil {
		return nil, err
	}
	return newProvider(at, kind), nil
}

// address is a parsed PKCS#11 URI (RFC 7512). Fields that the URI omits are empty.
type address struct {
	token, manufacturer, model, serial string // each must equal the value of the token; an empty field matches any value
	object, id                         string // CKA_LABEL and CKA_ID (raw bytes) of the key
	module                             string // absolute path of the token's library
	pinFile                            string // absolute path of the file with the user PIN
}

const uriForm = "pkcs11:token=LABEL;object=KEY?module-path=/usr/lib/…/lib….so&pin-source=file:/path/to/pin"

// parse reads the part of a URI after `pkcs11:` (RFC 7512 2.3). It refuses attributes that
// it does not support, because ignoring an attribute could select the wrong key. Errors
// MUST NOT show an attribute's value, because the value may be a PIN.
func parse(rest string) (address, error) {
	var a address
	var kind, pinSource string
	path, query, _ := strings.Cut(rest, "?")
	err := assign(path, ";", map[string]*string{
		"token": &a.token, "manufacturer": &a.manufacturer, "model": &a.model, "serial": &a.serial,
		"object": &a.object, "id": &a.id, "type": &kind,
	})
	if err == nil {
		err = assign(query, "&", map[string]*string{"module-path": &a.module, "pin-source": &pinSource})
	}
	a.pinFile = strings.TrimPrefix(strings.TrimPrefix(pinSource, "file:"), "//")
	switch {
	case err != nil:
	case a.token == "":
		err = errors.New("the PKCS#11 URI names no token: write " + uriForm)
	case a.object == "" && a.id == "":
		err = errors.New("the PKCS#11 URI names no key: add object=LABEL or id=ID (for example id=%01), or both")
	case kind != "" && kind != "private":
		err = errors.New("the PKCS#11 URI has a type that is not private: write type=private or omit type")
	case !filepath.IsAbs(a.module):
		err = errors.New("the PKCS#11 URI has no module-path with an absolute path: write module-path=/…, the path of the token's library")
	case !filepath.IsAbs(a.pinFile):
		err = errors.New("the PKCS#11 URI has no pin-source with an absolute path: write pin-source=file:/…, the path of a file with the user PIN")
	}
	return a, err
}

func assign(part, separator string, known map[string]*string) error {
	for attribute := range strings.SplitSeq(part, separator) {
		if part == "" {
			continue
		}
		name, escaped, ok := strings.Cut(attribute, "=")
		to, isKnown := known[name]
		value, err := url.PathUnescape(escaped)
		switch {
		case !ok:
			return errors.New("the PKCS#11 URI has an attribute without '=': write " + uriForm)
		case name == "pin-value":
			return errors.New("the PKCS#11 URI contains the PIN (pin-value), and URIs end up in process lists and manifests: put the PIN into a file and name that file with pin-source=file:/path")
		case !isKnown:
			return fmt.Errorf("the PKCS#11 URI has an attribute that is unknown or on the wrong side of the '?' (before the '?': token, manufacturer, model, serial, object, id, type; after the '?': module-path, pin-source): write, for example, %s", uriForm)
		case *to != "":
			return fmt.Errorf("the PKCS#11 URI has %s twice: keep one", name)
		case err != nil || value == "":
			return fmt.Errorf("the PKCS#11 URI has an invalid value for %s: write a non-empty value, with two hex digits after each '%%'", name)
		}
		*to = value
	}
	return nil
}
