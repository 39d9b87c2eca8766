package signing

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// pkcs11URI is what a URI of RFC 7512 says of a key. Empty fields were left out.
type pkcs11URI struct {
	token, manufacturer, model, serial string // of the token, whole matches
	object, id                         string // CKA_LABEL and CKA_ID (raw bytes) of the key
	modulePath                         string // the token's library, absolute
	pinFile                            string // holds the user PIN, absolute
}

const pkcs11Form = "pkcs11:token=LABEL;object=KEY?module-path=/usr/lib/…/lib….so&pin-source=file:/path/to/pin"

// parsePKCS11 reads what follows `pkcs11:` (RFC 7512 2.3). It knows less than the
// RFC and refuses the rest, for an attribute that is passed over could pick
// another key. No error shows a value: one of them might be a PIN.
func parsePKCS11(attributes string) (pkcs11URI, error) {
	var uri pkcs11URI
	var kind, pinSource string
	path, query, _ := strings.Cut(attributes, "?")
	read := func(part, separator string, known map[string]*string) error {
		if part == "" {
			return nil
		}
		for attribute := range strings.SplitSeq(part, separator) {
			name, escaped, ok := strings.Cut(attribute, "=")
			to, isKnown := known[name]
			switch {
			case !ok:
				return errors.New("the PKCS#11 URI has an attribute without '=': write " + pkcs11Form)
			case name == "pin-value":
				return errors.New("the PKCS#11 URI has pin-value, and a URI ends up in process lists and manifests: put the PIN into a file and name it with pin-source=file:/path")
			case !isKnown:
				return fmt.Errorf("the PKCS#11 URI has an attribute that is not known here in that place: write %s; the token may also be told by manufacturer, model and serial, the key by id", pkcs11Form)
			case *to != "":
				return fmt.Errorf("the PKCS#11 URI has %s twice", name)
			}
			value, err := url.PathUnescape(escaped)
			if err != nil || value == "" {
				return fmt.Errorf("the PKCS#11 URI: the value of %s is empty or has a '%%' that two hex digits do not follow", name)
			}
			*to = value
		}
		return nil
	}
	if err := read(path, ";", map[string]*string{
		"token": &uri.token, "manufacturer": &uri.manufacturer, "model": &uri.model, "serial": &uri.serial,
		"object": &uri.object, "id": &uri.id, "type": &kind,
	}); err != nil {
		return uri, err
	}
	if err := read(query, "&", map[string]*string{"module-path": &uri.modulePath, "pin-source": &pinSource}); err != nil {
		return uri, err
	}
	uri.pinFile = strings.TrimPrefix(strings.TrimPrefix(pinSource, "file:"), "//")
	switch {
	case uri.token == "":
		return uri, errors.New("the PKCS#11 URI names no token: write " + pkcs11Form)
	case uri.object == "" && uri.id == "":
		return uri, errors.New("the PKCS#11 URI names no key: add object=LABEL or id=%.., or both")
	case kind != "" && kind != "private":
		return uri, errors.New("the PKCS#11 URI has another type than private: only a private key signs")
	case !filepath.IsAbs(uri.modulePath):
		return uri, errors.New("the PKCS#11 URI needs module-path=/…, the absolute path of the token's library")
	case !filepath.IsAbs(uri.pinFile):
		return uri, errors.New("the PKCS#11 URI needs pin-source=file:/…, the absolute path of a file with the user PIN")
	}
	return uri, nil
}
