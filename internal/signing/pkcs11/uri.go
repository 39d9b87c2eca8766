// Package pkcs11 signs with a key that stays in a PKCS#11 token. It needs cgo and
// the build tag pkcs11; without them it only says so.
package pkcs11

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// address is what a URI of RFC 7512 says of a key. Empty fields were left out.
type address struct {
	token, manufacturer, model, serial string // of the token, whole matches
	object, id                         string // CKA_LABEL and CKA_ID (raw bytes) of the key
	module                             string // the token's library, absolute
	pinFile                            string // holds the user PIN, absolute
}

const form = "pkcs11:token=LABEL;object=KEY?module-path=/usr/lib/…/lib….so&pin-source=file:/path/to/pin"

// parse reads what follows `pkcs11:` (RFC 7512 2.3). It knows less than the RFC
// and refuses the rest, as an attribute that is ignored could pick another key.
// No error shows a value: one of them might be a PIN.
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
		err = errors.New("the PKCS#11 URI names no token: write " + form)
	case a.object == "" && a.id == "":
		err = errors.New("the PKCS#11 URI names no key: add object=LABEL or id=%.., or both")
	case kind != "" && kind != "private":
		err = errors.New("the PKCS#11 URI has another type than private: only a private key signs")
	case !filepath.IsAbs(a.module):
		err = errors.New("the PKCS#11 URI needs module-path=/…, the absolute path of the token's library")
	case !filepath.IsAbs(a.pinFile):
		err = errors.New("the PKCS#11 URI needs pin-source=file:/…, the absolute path of a file with the user PIN")
	}
	return a, err
}

// assign puts the attributes of a part of the URI where known says.
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
			return errors.New("the PKCS#11 URI has an attribute without '=': write " + form)
		case name == "pin-value":
			return errors.New("the PKCS#11 URI has pin-value, and a URI ends up in process lists and manifests: put the PIN into a file and name it with pin-source=file:/path")
		case !isKnown:
			return fmt.Errorf("the PKCS#11 URI has an attribute that is not known here in that place: write %s; the token may also be named by manufacturer, model and serial, the key by id", form)
		case *to != "":
			return fmt.Errorf("the PKCS#11 URI has %s twice", name)
		case err != nil || value == "":
			return fmt.Errorf("the PKCS#11 URI: the value of %s is empty or has a '%%' that two hex digits do not follow", name)
		}
		*to = value
	}
	return nil
}
