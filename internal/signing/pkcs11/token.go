//go:build pkcs11 && cgo

package pkcs11

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/asn1"
	"errors"
	"fmt"
	"os"
	"strings"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/fairpact/fairpact/internal/signing/transient"
)

// logIn opens a session on the one token of the URI, logs in, and finds the key.
func (p *Provider) logIn() error {
	slot, token, err := p.findToken()
	if err != nil {
		return err
	}
	session, err := p.library.OpenSession(slot, cryptoki.CKF_SERIAL_SESSION)
	if err != nil {
		return explain("open a session", err)
	}
	p.session, p.epoch = session, p.library.epoch
	if err = p.offerPIN(token); err == nil {
		err = p.findKey(token)
	}
	if err != nil {
		p.drop()
	}
	return err
}

// findToken returns the slot of the one token that the URI names.
func (p *Provider) findToken() (slot uint, token cryptoki.TokenInfo, err error) {
	slots, err := p.library.GetSlotList(true)
	if err != nil {
		return 0, token, explain("list the tokens", err)
	}
	matches := 0
	var present []string
	same := func(want, is string) bool { return want == "" || want == is }
	for _, s := range slots {
		info, err := p.library.GetTokenInfo(s)
		if err != nil || info.Flags&cryptoki.CKF_TOKEN_INITIALIZED == 0 {
			continue
		}
		present = append(present, fmt.Sprintf("%q", info.Label))
		if info.Label == p.at.token && same(p.at.manufacturer, info.ManufacturerID) && same(p.at.model, info.Model) && same(p.at.serial, info.SerialNumber) {
			slot, token = s, info
			matches++
		}
	}
	switch {
	case matches == 1:
		return slot, token, nil
	case matches > 1:
		return 0, token, fmt.Errorf("%d tokens are named %q: add serial= to the URI", matches, p.at.token)
	case len(present) == 0:
		return 0, token, transient.Error(fmt.Errorf("no token %q: the library shows no token at all; connect it, or tell the library where it is (SoftHSM: set SOFTHSM2_CONF)", p.at.token))
	}
	return 0, token, transient.Error(fmt.Errorf("no token %q: the library shows [%s]; name one of them, or connect the token", p.at.token, strings.Join(present, ", ")))
}

// offerPIN logs in. A PIN that was refused is not offered again, and the last
// try before a token locks is left to a person.
func (p *Provider) offerPIN(token cryptoki.TokenInfo) error {
	switch {
	case token.Flags&cryptoki.CKF_USER_PIN_LOCKED != 0:
		return explain("log in", cryptoki.Error(cryptoki.CKR_PIN_LOCKED))
	case token.Flags&cryptoki.CKF_USER_PIN_FINAL_TRY != 0:
		return fmt.Errorf("log in: one more wrong PIN locks the token %q: log in once by hand with the right one (pkcs11-tool --login --list-objects), correct pin-source, and restart", token.Label)
	}
	pin, err := readPIN(p.at.pinFile)
	if err != nil {
		return fmt.Errorf("pin-source: %w", err)
	}
	sum := sha256.Sum256([]byte(pin))
	if sum == p.rejected {
		return explain("log in", cryptoki.Error(cryptoki.CKR_PIN_INCORRECT))
	}
	err = p.library.Login(p.session, cryptoki.CKU_USER, pin)
	switch {
	case err == nil, errors.Is(err, cryptoki.Error(cryptoki.CKR_USER_ALREADY_LOGGED_IN)): // by another provider of this process
		return nil
	case errors.Is(err, cryptoki.Error(cryptoki.CKR_PIN_INCORRECT)):
		p.rejected = sum
	}
	return explain("log in", err)
}

// readPIN reads the user PIN at each login, so that a corrected file is used.
// The PIN is never kept, and no error holds any of it.
func readPIN(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o007 != 0:
		return "", fmt.Errorf("%s: it must be a regular file that not everybody may open (mode %04o): run chmod 600 on it", path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	pin := strings.TrimRight(string(text), "\r\n")
	if pin == "" || len(text) > 1024 {
		return "", fmt.Errorf("%s: it is empty or over 1024 bytes; it must hold the PIN and nothing else", path)
	}
	return pin, nil
}

// findKey finds the private key and the public one of the same CKA_ID.
func (p *Provider) findKey(token cryptoki.TokenInfo) error {
	var named []*cryptoki.Attribute
	if p.at.object != "" {
		named = append(named, cryptoki.NewAttribute(cryptoki.CKA_LABEL, p.at.object))
	}
	if p.at.id != "" {
		named = append(named, cryptoki.NewAttribute(cryptoki.CKA_ID, []byte(p.at.id)))
	}
	var err error
	if p.key, err = p.findOne("private", append(named, cryptoki.NewAttribute(cryptoki.CKA_CLASS, cryptoki.CKO_PRIVATE_KEY))); err != nil {
		return err
	}
	// A token need not have an attribute, or tell it.
	attribute := func(object cryptoki.ObjectHandle, kind uint) []byte {
		got, err := p.library.GetAttributeValue(p.session, object, []*cryptoki.Attribute{cryptoki.NewAttribute(kind, nil)})
		if err != nil || len(got) != 1 {
			return nil
		}
		return got[0].Value
	}
	is := func(kind uint, value any) bool {
		return bytes.Equal(attribute(p.key, kind), cryptoki.NewAttribute(kind, value).Value)
	}
	switch {
	case !is(cryptoki.CKA_KEY_TYPE, p.kind.keyType):
		return errors.New("the key is of another type: " + p.kind.need)
	case !is(cryptoki.CKA_SIGN, true):
		return errors.New("the key may not sign (CKA_SIGN is false): make a key that may")
	case is(cryptoki.CKA_ALWAYS_AUTHENTICATE, true):
		return errors.New("the key wants the PIN at each signature (CKA_ALWAYS_AUTHENTICATE), which no service can give: make a key without it")
	}
	if id := attribute(p.key, cryptoki.CKA_ID); len(id) > 0 {
		named = []*cryptoki.Attribute{cryptoki.NewAttribute(cryptoki.CKA_ID, id)}
	}
	object, err := p.findOne("public", append(named, cryptoki.NewAttribute(cryptoki.CKA_CLASS, cryptoki.CKO_PUBLIC_KEY)))
	if err != nil {
		return err
	}
	// What the token does not tell of its key's protection counts as the worse.
	kept := "key not extractable"
	switch {
	case !is(cryptoki.CKA_SENSITIVE, true):
		kept = "key NOT protected: the token gives it out in plain (not sensitive)"
	case !is(cryptoki.CKA_EXTRACTABLE, false):
		kept = "key extractable: the token may give it out wrapped"
	case !is(cryptoki.CKA_NEVER_EXTRACTABLE, true):
		kept = "key not extractable, but it once was or was made elsewhere"
	}
	public, err := p.kind.parse(attribute(object, cryptoki.CKA_EC_PARAMS), attribute(object, cryptoki.CKA_EC_POINT))
	switch {
	case err != nil:
		return err
	case p.public != nil && !p.public.Equal(public):
		return fmt.Errorf("the token %q now holds another key under that name: put the old one back, or restart with the new key published", p.at.token)
	}
	p.public = public
	p.custody = strings.ToValidUTF8(fmt.Sprintf("PKCS#11 token %s (%s %s), %s", token.Label, token.ManufacturerID, token.Model, kept), "?")
	return nil
}

func (p *Provider) findOne(kind string, template []*cryptoki.Attribute) (cryptoki.ObjectHandle, error) {
	if err := p.library.FindObjectsInit(p.session, template); err != nil {
		return 0, explain("look for the key", err)
	}
	found, _, err := p.library.FindObjects(p.session, 2)
	if err = errors.Join(err, p.library.FindObjectsFinal(p.session)); err != nil {
		return 0, explain("look for the key", err)
	}
	var named []string
	if p.at.object != "" {
		named = append(named, fmt.Sprintf("object=%q", p.at.object))
	}
	if p.at.id != "" {
		named = append(named, fmt.Sprintf("id=%x", p.at.id))
	}
	key := kind + " key with " + strings.Join(named, " and ")
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return 0, fmt.Errorf("the token %q holds no %s: pkcs11-tool --login --list-objects shows what it has", p.at.token, key)
	}
	return 0, fmt.Errorf("the token %q holds more than one %s: name one by its id, id=%%01 say", p.at.token, key)
}

var p256 = kind{cryptoki.CKK_EC, cryptoki.CKM_ECDSA, needP256, func(params, point []byte) (publicKey, error) { return parsePublic(params, point) }}

const needP256 = "es256 needs ECDSA on P-256 (pkcs11-tool --keypairgen --key-type EC:prime256v1)"

// paramsP256 is CKA_EC_PARAMS of P-256: the DER form of its object identifier
// (RFC 5480 2.1.1.1).
var paramsP256 = []byte{6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7}

// parsePublic reads a public key object: CKA_EC_POINT is an OCTET STRING in DER
// around the uncompressed point (PKCS#11 2.3.3). Some tokens leave the wrapping
// out, which the length shows.
func parsePublic(params, point []byte) (*ecdsa.PublicKey, error) {
	if !bytes.Equal(params, paramsP256) {
		var curve asn1.ObjectIdentifier
		_, _ = asn1.Unmarshal(params, &curve)
		return nil, fmt.Errorf("the key's CKA_EC_PARAMS (%x, curve %s) do not name P-256: %s", params, curve, needP256)
	}
	if len(point) == 67 && point[0] == 4 && point[1] == 65 {
		point = point[2:]
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return nil, fmt.Errorf("the key's CKA_EC_POINT of %d bytes is no uncompressed point of P-256: %w", len(point), err)
	}
	return public, nil
}
