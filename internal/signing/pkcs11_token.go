//go:build pkcs11 && cgo

package signing

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/miekg/pkcs11"
)

// login opens sessions on the one token of the URI, logs in, and finds the key.
func (p *token) login() (_ *link, err error) {
	generation, leave := p.module.enter()
	defer leave()
	slot, info, err := p.findToken()
	if err != nil {
		return nil, err
	}
	l := &link{module: p.module, generation: generation, idle: make(chan pkcs11.SessionHandle, maxSessions), gone: make(chan struct{})}
	defer func() {
		if err != nil {
			l.end()
		}
	}()
	var first pkcs11.SessionHandle
	for len(l.idle) < maxSessions {
		session, err := p.module.OpenSession(slot, pkcs11.CKF_SERIAL_SESSION)
		if errors.Is(err, pkcs11.Error(pkcs11.CKR_SESSION_COUNT)) && len(l.idle) > 0 {
			break
		}
		if err != nil {
			return nil, inWords("open a session", err)
		}
		if len(l.idle) == 0 {
			first = session
		}
		l.idle <- session
	}
	if err := p.offerPIN(first, info); err != nil {
		return nil, err
	}
	return l, p.findKey(l, first, info)
}

// findToken gives the slot of the one token that the URI names.
func (p *token) findToken() (uint, pkcs11.TokenInfo, error) {
	slots, err := p.module.GetSlotList(true)
	if err != nil {
		return 0, pkcs11.TokenInfo{}, inWords("list the tokens", err)
	}
	var found pkcs11.TokenInfo
	var at uint
	matches := 0
	var present []string
	for _, slot := range slots {
		info, err := p.module.GetTokenInfo(slot)
		if err != nil || info.Flags&pkcs11.CKF_TOKEN_INITIALIZED == 0 {
			continue
		}
		present = append(present, fmt.Sprintf("%q", info.Label))
		same := func(want, is string) bool { return want == "" || want == is }
		if info.Label == p.uri.token && same(p.uri.manufacturer, info.ManufacturerID) && same(p.uri.model, info.Model) && same(p.uri.serial, info.SerialNumber) {
			at, found = slot, info
			matches++
		}
	}
	switch matches {
	case 1:
		return at, found, nil
	case 0:
		if len(present) == 0 {
			return 0, found, transient{fmt.Errorf("no token %q: the library shows no token at all; connect it, or tell the library where it is (SoftHSM: set SOFTHSM2_CONF)", p.uri.token)}
		}
		return 0, found, transient{fmt.Errorf("no token %q: the library shows [%s]; name one of them, or connect the token", p.uri.token, strings.Join(present, ", "))}
	}
	return 0, found, fmt.Errorf("%d tokens are named %q: add serial= to the URI", matches, p.uri.token)
}

// offerPIN logs in. A PIN that was refused is not offered again, and the last
// try before a token locks is left to a person.
func (p *token) offerPIN(session pkcs11.SessionHandle, info pkcs11.TokenInfo) error {
	switch {
	case info.Flags&pkcs11.CKF_USER_PIN_LOCKED != 0:
		return inWords("log in", pkcs11.Error(pkcs11.CKR_PIN_LOCKED))
	case info.Flags&pkcs11.CKF_USER_PIN_FINAL_TRY != 0:
		return fmt.Errorf("log in: one more wrong PIN locks the token %q: log in once by hand with the right one (pkcs11-tool --login --list-objects), mend pin-source, and restart", info.Label)
	}
	pin, err := p.uri.pin()
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(pin))
	if sum == p.rejected {
		return inWords("log in", pkcs11.Error(pkcs11.CKR_PIN_INCORRECT))
	}
	err = p.module.Login(session, pkcs11.CKU_USER, pin)
	switch {
	case err == nil, errors.Is(err, pkcs11.Error(pkcs11.CKR_USER_ALREADY_LOGGED_IN)): // by another signer of this process
		return nil
	case errors.Is(err, pkcs11.Error(pkcs11.CKR_PIN_INCORRECT)):
		p.rejected = sum
	}
	return inWords("log in", err)
}

// findKey finds the private key and the public one of the same CKA_ID.
func (p *token) findKey(l *link, session pkcs11.SessionHandle, info pkcs11.TokenInfo) error {
	var named []*pkcs11.Attribute
	if p.uri.object != "" {
		named = append(named, pkcs11.NewAttribute(pkcs11.CKA_LABEL, p.uri.object))
	}
	if p.uri.id != "" {
		named = append(named, pkcs11.NewAttribute(pkcs11.CKA_ID, []byte(p.uri.id)))
	}
	private, err := p.findOne(session, "private", append(named, pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_PRIVATE_KEY)))
	if err != nil {
		return err
	}
	if err := p.checkUse(session, private); err != nil {
		return err
	}
	if id := p.attribute(session, private, pkcs11.CKA_ID); len(id) > 0 {
		named = []*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_ID, id)}
	}
	public, err := p.findOne(session, "public", append(named, pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_PUBLIC_KEY)))
	if err != nil {
		return err
	}
	if l.public, err = parseECObject(p.attribute(session, public, pkcs11.CKA_EC_PARAMS), p.attribute(session, public, pkcs11.CKA_EC_POINT)); err != nil {
		return err
	}
	l.key, l.words = private, p.describe(session, private, info)
	return nil
}

func (p *token) findOne(session pkcs11.SessionHandle, kind string, template []*pkcs11.Attribute) (pkcs11.ObjectHandle, error) {
	if err := p.module.FindObjectsInit(session, template); err != nil {
		return 0, inWords("look for the key", err)
	}
	found, _, err := p.module.FindObjects(session, 2)
	err = errors.Join(err, p.module.FindObjectsFinal(session))
	switch {
	case err != nil:
		return 0, inWords("look for the key", err)
	case len(found) == 0:
		return 0, fmt.Errorf("the token %q holds no %s key with %s: pkcs11-tool --login --list-objects shows what it has", p.uri.token, kind, p.uri.key())
	case len(found) > 1:
		return 0, fmt.Errorf("the token %q holds more than one %s key with %s: name one by its id, id=%%01 say", p.uri.token, kind, p.uri.key())
	}
	return found[0], nil
}

// key renders what the URI says of the key.
func (u pkcs11URI) key() string {
	var parts []string
	if u.object != "" {
		parts = append(parts, fmt.Sprintf("object=%q", u.object))
	}
	if u.id != "" {
		parts = append(parts, fmt.Sprintf("id=%x", u.id))
	}
	return strings.Join(parts, " and ")
}

// attribute is nil where the token has none or does not tell.
func (p *token) attribute(session pkcs11.SessionHandle, object pkcs11.ObjectHandle, kind uint) []byte {
	got, err := p.module.GetAttributeValue(session, object, []*pkcs11.Attribute{pkcs11.NewAttribute(kind, nil)})
	if err != nil || len(got) != 1 {
		return nil
	}
	return got[0].Value
}

func (p *token) checkUse(session pkcs11.SessionHandle, key pkcs11.ObjectHandle) error {
	if kind := p.attribute(session, key, pkcs11.CKA_KEY_TYPE); !bytes.Equal(kind, pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, pkcs11.CKK_EC).Value) {
		return errors.New("the key is no elliptic curve key: es256 needs ECDSA on P-256 (pkcs11-tool --keypairgen --key-type EC:prime256v1)")
	}
	if may := p.attribute(session, key, pkcs11.CKA_SIGN); !bytes.Equal(may, []byte{1}) {
		return errors.New("the key may not sign (CKA_SIGN is false): make a key that may")
	}
	if always := p.attribute(session, key, pkcs11.CKA_ALWAYS_AUTHENTICATE); bytes.Equal(always, []byte{1}) {
		return errors.New("the key wants the PIN at each signature (CKA_ALWAYS_AUTHENTICATE), which no service can give: make a key without it")
	}
	return nil
}

// describe puts the custody into words. What the token does not tell counts as
// the worse.
func (p *token) describe(session pkcs11.SessionHandle, key pkcs11.ObjectHandle, info pkcs11.TokenInfo) string {
	is := func(kind uint, value byte) bool { return bytes.Equal(p.attribute(session, key, kind), []byte{value}) }
	kept := "key not extractable"
	switch {
	case !is(pkcs11.CKA_SENSITIVE, 1):
		kept = "key NOT protected: the token gives it out in plain (not sensitive)"
	case !is(pkcs11.CKA_EXTRACTABLE, 0):
		kept = "key extractable: the token may give it out wrapped"
	case !is(pkcs11.CKA_NEVER_EXTRACTABLE, 1):
		kept = "key not extractable, but it once was or was made elsewhere"
	}
	return strings.ToValidUTF8(fmt.Sprintf("PKCS#11 token %s (%s %s), %s", info.Label, info.ManufacturerID, info.Model, kept), "?")
}

// The named curves that a token may hold, as CKA_EC_PARAMS has them: the DER
// form of their object identifiers (RFC 5480 2.1.1.1).
var (
	paramsP256  = []byte{6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7}
	otherCurves = map[string]string{
		"\x06\x05\x2b\x81\x04\x00\x22": "P-384",
		"\x06\x05\x2b\x81\x04\x00\x23": "P-521",
		"\x06\x05\x2b\x81\x04\x00\x0a": "secp256k1",
	}
)

// parseECObject reads a public key object: CKA_EC_POINT is an OCTET STRING in DER
// around the uncompressed point (PKCS#11 2.3.3); some tokens leave the wrapping
// out, and the length tells which it is.
func parseECObject(params, point []byte) (*ecdsa.PublicKey, error) {
	if !bytes.Equal(params, paramsP256) {
		if name, ok := otherCurves[string(params)]; ok {
			return nil, fmt.Errorf("a key on %s: es256 needs P-256 (pkcs11-tool --keypairgen --key-type EC:prime256v1)", name)
		}
		return nil, fmt.Errorf("the key's CKA_EC_PARAMS (%x) do not name P-256: es256 needs it", params)
	}
	if len(point) == 67 && point[0] == 4 && point[1] == 65 {
		point = point[2:]
	}
	if len(point) != 65 {
		return nil, fmt.Errorf("the key's CKA_EC_POINT of %d bytes is no uncompressed point of P-256", len(point))
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return nil, fmt.Errorf("the key's CKA_EC_POINT: %w", err)
	}
	return public, nil
}
