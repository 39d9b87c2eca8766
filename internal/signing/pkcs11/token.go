//go:build pkcs11 && cgo

package pkcs11

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
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

// offerPIN sends no PIN that the token has refused before, or that could lock the token.
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

// findKey sets object, public and custody. The public key has the CKA_ID of the private key.
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

// form says how PKCS#11 represents the keys and signatures of one provider.Kind.
type form struct {
	keyType   uint   // CKA_KEY_TYPE
	mechanism uint   // the CKM_ constant of the signature scheme
	need      string // text for errors: the required type of key, and how to generate one
	parse     func(params, point []byte) (publicKey, error)
	signature func(raw []byte) ([]byte, error) // converts the token's signature to the encoding that Provider.Sign returns
}

type publicKey interface{ Equal(crypto.PublicKey) bool }

// ckkECEdwards and ckmEDDSA are constants of PKCS#11 3.0 that the Go binding lacks.
const (
	ckkECEdwards = 0x40
	ckmEDDSA     = 0x1057
)

const (
	needP256    = "es256 needs a P-256 key; generate one with `pkcs11-tool --keypairgen --key-type EC:prime256v1`"
	needEd25519 = "a log key is an Ed25519 key; generate one with `pkcs11-tool --keypairgen --key-type EC:edwards25519`"
)

var forms = map[provider.Kind]form{
	provider.P256: {cryptoki.CKK_EC, cryptoki.CKM_ECDSA, needP256, parseP256, func(raw []byte) ([]byte, error) {
		// raw is r‖s, and r and s have equal lengths (PKCS#11 2.3.1). Package signing checks
		// their values.
		half := len(raw) / 2
		return asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(raw[:half]), new(big.Int).SetBytes(raw[half:])})
	}},
	provider.Ed25519: {ckkECEdwards, ckmEDDSA, needEd25519, parseEd25519, func(raw []byte) ([]byte, error) { return raw, nil }},
}

// paramsP256 is the CKA_EC_PARAMS of P-256: the curve's identifier in DER (RFC 5480 2.1.1.1).
var paramsP256 = []byte{6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7}

// paramsEd25519 lists the values of CKA_EC_PARAMS that tokens use for Ed25519: the object
// identifier of RFC 8410, the curve's name (PKCS#11 3.0 2.3.5), and the object identifier
// that was in use before RFC 8410.
var paramsEd25519 = [][]byte{
	{6, 3, 0x2b, 0x65, 0x70},
	append([]byte{0x13, 12}, "edwards25519"...),
	{6, 9, 0x2b, 6, 1, 4, 1, 0xda, 0x47, 15, 1},
}

func parseP256(params, point []byte) (publicKey, error) {
	if !bytes.Equal(params, paramsP256) {
		var curve asn1.ObjectIdentifier
		_, _ = asn1.Unmarshal(params, &curve)
		return nil, fmt.Errorf("the key's CKA_EC_PARAMS (%x, curve %s) do not name P-256: %s", params, curve, needP256)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), unwrapped(point, 65))
	if err != nil {
		return nil, fmt.Errorf("the key's CKA_EC_POINT of %d bytes is not an uncompressed point of P-256: %w", len(point), err)
	}
	return public, nil
}

func parseEd25519(params, point []byte) (publicKey, error) {
	if !slices.ContainsFunc(paramsEd25519, func(form []byte) bool { return bytes.Equal(params, form) }) {
		return nil, fmt.Errorf("the key's CKA_EC_PARAMS (%x) do not name Ed25519: %s", params, needEd25519)
	}
	if point = unwrapped(point, ed25519.PublicKeySize); len(point) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("the key's CKA_EC_POINT has %d bytes, but an Ed25519 key has %d", len(point), ed25519.PublicKeySize)
	}
	return ed25519.PublicKey(point), nil
}

// unwrapped removes the DER OCTET STRING in which some tokens wrap a point of n bytes (PKCS#11 2.3.3).
func unwrapped(point []byte, n int) []byte {
	if len(point) == n+2 && point[0] == 4 && int(point[1]) == n {
		return point[2:]
	}
	return point
}
