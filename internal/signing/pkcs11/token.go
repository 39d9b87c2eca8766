//go:build pkcs11 && cgo

package pkcs11

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

func (k *key) logIn() error {
	slot, token, err := k.findToken()
	if err != nil {
		return err
	}
	session, err := k.library.OpenSession(slot, cryptoki.CKF_SERIAL_SESSION)
	if err != nil {
		return explain("open a session", err)
	}
	k.session, k.epoch = session, k.library.epoch
	if err = k.offerPIN(token); err == nil {
		err = k.findKey(token)
	}
	if err != nil {
		k.drop()
	}
	return err
}

func (k *key) findToken() (slot uint, token cryptoki.TokenInfo, err error) {
	slots, err := k.library.GetSlotList(true)
	if err != nil {
		return 0, token, explain("list the tokens", err)
	}
	matches := 0
	var present []string
	same := func(want, is string) bool { return want == "" || want == is }
	for _, s := range slots {
		info, err := k.library.GetTokenInfo(s)
		if err != nil || info.Flags&cryptoki.CKF_TOKEN_INITIALIZED == 0 {
			continue
		}
		present = append(present, fmt.Sprintf("%q", info.Label))
		if info.Label == k.at.token && same(k.at.manufacturer, info.ManufacturerID) && same(k.at.model, info.Model) && same(k.at.serial, info.SerialNumber) {
			slot, token = s, info
			matches++
		}
	}
	switch {
	case matches == 1:
		return slot, token, nil
	case matches > 1:
		return 0, token, fmt.Errorf("%d tokens are named %q: add serial= to the URI", matches, k.at.token)
	case len(present) == 0:
		return 0, token, provider.Transient(fmt.Errorf("no token %q: the library shows no tokens; connect the token, or tell the library where the token is (SoftHSM: set SOFTHSM2_CONF)", k.at.token))
	}
	return 0, token, provider.Transient(fmt.Errorf("no token %q matches the URI: the library shows [%s]; connect the token, or correct token=, manufacturer=, model= and serial= in the URI", k.at.token, strings.Join(present, ", ")))
}

// offerPIN logs in with the PIN in the pin-source file. It does not send the PIN if the
// token has already refused this PIN, or if one more wrong PIN would lock the token.
func (k *key) offerPIN(token cryptoki.TokenInfo) error {
	switch {
	case token.Flags&cryptoki.CKF_USER_PIN_LOCKED != 0:
		return explain("log in", cryptoki.Error(cryptoki.CKR_PIN_LOCKED))
	case token.Flags&cryptoki.CKF_USER_PIN_FINAL_TRY != 0:
		return fmt.Errorf("cannot log in: one more wrong PIN locks the token %q: log in once by hand with the right PIN (`pkcs11-tool --login --list-objects`), put this PIN into the pin-source file, and restart the service", token.Label)
	}
	pin, err := readPIN(k.at.pinFile)
	if err != nil {
		return fmt.Errorf("pin-source: %w", err)
	}
	this := rejectedPIN{token.ManufacturerID, token.Model, token.SerialNumber, token.Label, sha256.Sum256([]byte(pin))}
	if k.library.refused[this] {
		return explain("log in", cryptoki.Error(cryptoki.CKR_PIN_INCORRECT))
	}
	err = k.library.Login(k.session, cryptoki.CKU_USER, pin)
	switch {
	case err == nil, errors.Is(err, cryptoki.Error(cryptoki.CKR_USER_ALREADY_LOGGED_IN)):
		// "Already logged in" means that another key of this process has logged in to the token.
		return nil
	case errors.Is(err, cryptoki.Error(cryptoki.CKR_PIN_INCORRECT)):
		k.library.refused[this] = true
	}
	return explain("log in", err)
}

// readPIN reads the user PIN from a file. Each login reads the file again, and so uses a
// corrected PIN. The PIN MUST NOT be stored, and errors MUST NOT show it.
func readPIN(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o007 != 0:
		return "", fmt.Errorf("%s: not a regular file, or its mode %04o gives all users access: name a regular file, and run `chmod 600` on it", path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	pin := strings.TrimRight(string(text), "\r\n")
	if pin == "" || len(text) > 1024 {
		return "", fmt.Errorf("%s: the file has no PIN, or is longer than 1024 bytes: write only the PIN into the file", path)
	}
	return pin, nil
}

// findKey finds the private key that the URI names, and the public key with the same
// CKA_ID. It sets the fields object, public and custody.
func (k *key) findKey(token cryptoki.TokenInfo) error {
	var named []*cryptoki.Attribute
	if k.at.object != "" {
		named = append(named, cryptoki.NewAttribute(cryptoki.CKA_LABEL, k.at.object))
	}
	if k.at.id != "" {
		named = append(named, cryptoki.NewAttribute(cryptoki.CKA_ID, []byte(k.at.id)))
	}
	var err error
	if k.object, err = k.findOne("private", append(named, cryptoki.NewAttribute(cryptoki.CKA_CLASS, cryptoki.CKO_PRIVATE_KEY))); err != nil {
		return err
	}
	attribute := func(object cryptoki.ObjectHandle, kind uint) []byte {
		got, err := k.library.GetAttributeValue(k.session, object, []*cryptoki.Attribute{cryptoki.NewAttribute(kind, nil)})
		if err != nil || len(got) != 1 {
			return nil
		}
		return got[0].Value
	}
	is := func(kind uint, value any) bool {
		return bytes.Equal(attribute(k.object, kind), cryptoki.NewAttribute(kind, value).Value)
	}
	switch {
	case !is(cryptoki.CKA_KEY_TYPE, k.keyType):
		return errors.New("the key has the wrong type (CKA_KEY_TYPE): " + k.need)
	case !is(cryptoki.CKA_SIGN, true):
		return errors.New("the key is not allowed to sign (CKA_SIGN is false): make a key with CKA_SIGN")
	case is(cryptoki.CKA_ALWAYS_AUTHENTICATE, true):
		return errors.New("the key requires the PIN for each signature, which the service does not support: make a key without CKA_ALWAYS_AUTHENTICATE")
	}
	if id := attribute(k.object, cryptoki.CKA_ID); len(id) > 0 {
		named = []*cryptoki.Attribute{cryptoki.NewAttribute(cryptoki.CKA_ID, id)}
	}
	object, err := k.findOne("public", append(named, cryptoki.NewAttribute(cryptoki.CKA_CLASS, cryptoki.CKO_PUBLIC_KEY)))
	if err != nil {
		return err
	}
	// If the token does not show an attribute, kept describes the weaker protection.
	kept := "key not extractable"
	switch {
	case !is(cryptoki.CKA_SENSITIVE, true):
		kept = "key NOT protected: the token gives it out in plain (not sensitive)"
	case !is(cryptoki.CKA_EXTRACTABLE, false):
		kept = "key extractable: the token may give it out wrapped"
	case !is(cryptoki.CKA_NEVER_EXTRACTABLE, true):
		kept = "key not extractable, but it was extractable once or was made outside the token"
	}
	public, err := k.parse(attribute(object, cryptoki.CKA_EC_PARAMS), attribute(object, cryptoki.CKA_EC_POINT))
	switch {
	case err != nil:
		return err
	case k.public != nil && !k.public.Equal(public):
		return fmt.Errorf("the token %q now holds another key under the name in the URI: put the old key back, or publish the new key and restart the service", k.at.token)
	}
	k.public = public
	k.custody = strings.ToValidUTF8(fmt.Sprintf("PKCS#11 token %s (%s %s), %s", token.Label, token.ManufacturerID, token.Model, kept), "?")
	return nil
}

func (k *key) findOne(kind string, template []*cryptoki.Attribute) (cryptoki.ObjectHandle, error) {
	if err := k.library.FindObjectsInit(k.session, template); err != nil {
		return 0, explain("look for the key", err)
	}
	found, _, err := k.library.FindObjects(k.session, 2)
	if err = errors.Join(err, k.library.FindObjectsFinal(k.session)); err != nil {
		return 0, explain("look for the key", err)
	}
	var named []string
	if k.at.object != "" {
		named = append(named, fmt.Sprintf("object=%q", k.at.object))
	}
	if k.at.id != "" {
		named = append(named, fmt.Sprintf("id=%x", k.at.id))
	}
	key := kind + " key with " + strings.Join(named, " and ")
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return 0, fmt.Errorf("the token %q holds no %s: compare the URI with the output of `pkcs11-tool --login --list-objects`", k.at.token, key)
	}
	return 0, fmt.Errorf("the token %q holds more than one %s: add the id of one key to the URI, for example id=%%01", k.at.token, key)
}
