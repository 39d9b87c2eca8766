//go:build pkcs11 && cgo

package signing

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/pkcs11"
)

const (
	softHSM  = "/usr/lib/softhsm/libsofthsm2.so"
	rightPIN = "secret-1234"
)

// softToken is a SoftHSM with one token "fairpact", in a folder of the test.
type softToken struct{ dir string }

func newSoftToken(t *testing.T) *softToken {
	t.Helper()
	s := &softToken{t.TempDir()}
	s.write(t, "softhsm2.conf", "directories.tokendir = "+s.dir+"/tokens\nobjectstore.backend = file\nlog.level = ERROR\n")
	s.write(t, "pin", rightPIN+"\n")
	s.write(t, "wrong-pin", "secret-9999")
	if err := os.Mkdir(s.dir+"/tokens", 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOFTHSM2_CONF", s.dir+"/softhsm2.conf")
	s.util(t, "--init-token", "--free", "--label", "fairpact", "--so-pin", "so-secret", "--pin", rightPIN)
	return s
}

func (s *softToken) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *softToken) util(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("softhsm2-util", args...).CombinedOutput(); err != nil {
		t.Fatalf("softhsm2-util %s: %v\n%s", args[0], err, out)
	}
}

func (s *softToken) importKey(t *testing.T, label, id string, key any) {
	t.Helper()
	s.util(t, "--import", s.write(t, label+".pem", string(pkcs8(t, key))), "--token", "fairpact", "--label", label, "--id", id, "--pin", rightPIN)
}

// generate makes a key pair inside the token, with attributes of its private
// half.
func (s *softToken) generate(t *testing.T, label string, id byte, private ...*pkcs11.Attribute) {
	t.Helper()
	module, session := s.loggedIn(t)
	defer func() { _ = module.release() }()
	defer func() { _ = module.CloseSession(session) }()
	both := []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, true), pkcs11.NewAttribute(pkcs11.CKA_LABEL, label), pkcs11.NewAttribute(pkcs11.CKA_ID, []byte{id}),
	}
	public := append([]*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_EC_PARAMS, paramsP256), pkcs11.NewAttribute(pkcs11.CKA_VERIFY, true)}, both...)
	private = append(append(private, pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, true)), both...)
	if _, _, err := module.GenerateKeyPair(session, []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_EC_KEY_PAIR_GEN, nil)}, public, private); err != nil {
		t.Fatal(err)
	}
}

func (s *softToken) loggedIn(t *testing.T) (*library, pkcs11.SessionHandle) {
	t.Helper()
	module, err := loadModule(softHSM)
	if err != nil {
		t.Fatal(err)
	}
	slot, _, err := (&token{uri: pkcs11URI{token: "fairpact"}, module: module}).findToken()
	if err != nil {
		t.Fatal(err)
	}
	session, err := module.OpenSession(slot, pkcs11.CKF_SERIAL_SESSION|pkcs11.CKF_RW_SESSION)
	if err != nil {
		t.Fatal(err)
	}
	if err := module.Login(session, pkcs11.CKU_USER, rightPIN); err != nil && !errors.Is(err, pkcs11.Error(pkcs11.CKR_USER_ALREADY_LOGGED_IN)) {
		t.Fatal(err)
	}
	return module, session
}

func (s *softToken) uri(key string) string {
	return "pkcs11:token=fairpact;" + key + "?module-path=" + softHSM + "&pin-source=file:" + s.dir + "/pin"
}

// kept are the attributes of a key that never leaves the token.
func kept() []*pkcs11.Attribute {
	return []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_SIGN, true), pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true), pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, false),
	}
}

// mustOpenToken opens a signer and closes it with the test.
func mustOpenToken(t *testing.T, uri string) *Signer {
	t.Helper()
	signer := mustOpen(t, uri)
	t.Cleanup(func() {
		if err := signer.Close(); err != nil {
			t.Error(err)
		}
	})
	return signer
}

func TestPKCS11Conforms(t *testing.T) {
	s := newSoftToken(t)
	s.generate(t, "deployment", 1, kept()...)
	conformance(t, func(t *testing.T) *Signer { return mustOpenToken(t, s.uri("object=deployment")) })
	if mustOpenToken(t, s.uri("id=%01;type=private")).Ephemeral() {
		t.Error("a key of a token is not a development key")
	}
}

func TestPKCS11Custody(t *testing.T) {
	s := newSoftToken(t)
	s.generate(t, "kept", 1, kept()...)
	s.generate(t, "wrapped", 2, pkcs11.NewAttribute(pkcs11.CKA_SIGN, true), pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true), pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, true))
	s.generate(t, "plain", 3, pkcs11.NewAttribute(pkcs11.CKA_SIGN, true), pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, false), pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, true))
	s.importKey(t, "imported", "04", newP256(t))
	for key, want := range map[string]string{
		"kept":     "PKCS#11 token fairpact (SoftHSM project SoftHSM v2), key not extractable",
		"wrapped":  "PKCS#11 token fairpact (SoftHSM project SoftHSM v2), key extractable: the token may give it out wrapped",
		"plain":    "PKCS#11 token fairpact (SoftHSM project SoftHSM v2), key NOT protected: the token gives it out in plain (not sensitive)",
		"imported": "PKCS#11 token fairpact (SoftHSM project SoftHSM v2), key not extractable, but it once was or was made elsewhere",
	} {
		if got := mustOpenToken(t, s.uri("object="+key)).Custody(); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

// Each start that must fail: the error says what to do, and shows no PIN.
func TestPKCS11RefusedAtStart(t *testing.T) {
	s := newSoftToken(t)
	p384 := newKey(t, elliptic.P384())
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s.importKey(t, "good", "01", newP256(t))
	s.importKey(t, "p384", "02", p384)
	s.importKey(t, "rsa", "03", rsaKey)
	s.generate(t, "twice", 4, kept()...)
	s.generate(t, "twice", 5, kept()...)
	s.generate(t, "no-sign", 6, pkcs11.NewAttribute(pkcs11.CKA_SIGN, false))
	open := s.write(t, "open-pin", rightPIN)
	if err := os.Chmod(open, 0o604); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ uri, want string }{
		"no such library":  {strings.Replace(s.uri("object=good"), softHSM, "/nonexistent/hsm.so", 1), "no such file"},
		"no library":       {strings.Replace(s.uri("object=good"), softHSM, s.dir+"/pin", 1), "ldd"},
		"no such token":    {strings.Replace(s.uri("object=good"), "token=fairpact", "token=other", 1), `shows ["fairpact"]`},
		"another serial":   {s.uri("object=good;serial=none"), `no token "fairpact"`},
		"no such object":   {s.uri("object=none"), "--list-objects"},
		"label, not id":    {s.uri("object=good;id=%09"), "id=09"},
		"two objects":      {s.uri("object=twice"), "more than one private key"},
		"P-384":            {s.uri("object=p384"), "P-384"},
		"RSA":              {s.uri("object=rsa"), "P-256"},
		"may not sign":     {s.uri("object=no-sign"), "CKA_SIGN"},
		"wrong PIN":        {strings.Replace(s.uri("object=good"), s.dir+"/pin", s.dir+"/wrong-pin", 1), "not tried again"},
		"no PIN file":      {strings.Replace(s.uri("object=good"), s.dir+"/pin", s.dir+"/none", 1), "no such file"},
		"PIN open to all":  {strings.Replace(s.uri("object=good"), s.dir+"/pin", open, 1), "chmod 600"},
		"PIN file is long": {strings.Replace(s.uri("object=good"), s.dir+"/pin", s.write(t, "long", strings.Repeat("secret-1", 200)), 1), "1024 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), c.uri)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret-") {
				t.Errorf("%v; want an error with %q and without a PIN", err, c.want)
			}
		})
	}
	if signer := mustOpenToken(t, s.uri("object=twice;id=%05")); signer.PublicKey() == "" {
		t.Error("one of two by its id")
	}
}

// faulty is a real token with a fault before each call that has one.
type faulty struct {
	cryptoki
	sign   func() error
	login  func() error
	info   uint // flags added to the token's
	logins atomic.Int64
}

func (f *faulty) Sign(session pkcs11.SessionHandle, message []byte) ([]byte, error) {
	if f.sign != nil {
		if err := f.sign(); err != nil {
			return nil, err
		}
	}
	return f.cryptoki.Sign(session, message)
}

func (f *faulty) Login(session pkcs11.SessionHandle, user uint, pin string) error {
	f.logins.Add(1)
	if f.login != nil {
		if err := f.login(); err != nil {
			return err
		}
	}
	return f.cryptoki.Login(session, user, pin)
}

func (f *faulty) GetTokenInfo(slot uint) (pkcs11.TokenInfo, error) {
	info, err := f.cryptoki.GetTokenInfo(slot)
	info.Flags |= f.info
	return info, err
}

func TestPKCS11Faults(t *testing.T) {
	s := newSoftToken(t)
	s.generate(t, "deployment", 1, kept()...)
	open := func(t *testing.T) (*token, *faulty, *library) {
		t.Helper()
		module, err := loadModule(softHSM)
		if err != nil {
			t.Fatal(err)
		}
		f := &faulty{cryptoki: module}
		p, err := openToken(pkcs11URI{token: "fairpact", object: "deployment", modulePath: softHSM, pinFile: s.dir + "/pin"}, f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.close() })
		return p, f, module
	}
	works := func(t *testing.T, p *token) {
		t.Helper()
		digest := [32]byte{7}
		der, err := p.sign(t.Context(), digest)
		if err != nil || !ecdsa.VerifyASN1(p.publicKey(), digest[:], der) {
			t.Errorf("after the fault: %v", err)
		}
	}

	for _, code := range []uint{
		pkcs11.CKR_SESSION_HANDLE_INVALID, pkcs11.CKR_DEVICE_REMOVED, pkcs11.CKR_TOKEN_NOT_PRESENT, pkcs11.CKR_DEVICE_ERROR,
		pkcs11.CKR_USER_NOT_LOGGED_IN, pkcs11.CKR_KEY_HANDLE_INVALID, pkcs11.CKR_GENERAL_ERROR,
	} {
		t.Run(pkcs11.Error(code).Error(), func(t *testing.T) {
			p, f, _ := open(t)
			f.sign = func() error { f.sign = nil; return pkcs11.Error(code) }
			_, err := p.sign(t.Context(), [32]byte{7})
			if again, ok := errors.AsType[transient](err); !ok || !errors.Is(again, pkcs11.Error(code)) {
				t.Errorf("%v; want a transient error with the code", err)
			}
			works(t, p)
			if f.logins.Load() != 2 {
				t.Errorf("%d logins, want 2", f.logins.Load())
			}
		})
	}

	t.Run("all sessions are really gone", func(t *testing.T) {
		p, _, module := open(t)
		slot, _, err := p.findToken()
		if err != nil {
			t.Fatal(err)
		}
		if err := module.CloseAllSessions(slot); err != nil {
			t.Fatal(err)
		}
		_, err = p.sign(t.Context(), [32]byte{7})
		if _, ok := errors.AsType[transient](err); !ok {
			t.Errorf("%v; want a transient error", err)
		}
		works(t, p)
	})

	t.Run("a PIN that is refused later is offered once", func(t *testing.T) {
		p, f, _ := open(t)
		f.sign = func() error { f.sign = nil; return pkcs11.Error(pkcs11.CKR_SESSION_CLOSED) }
		f.login = func() error { return pkcs11.Error(pkcs11.CKR_PIN_INCORRECT) }
		_, _ = p.sign(t.Context(), [32]byte{7})
		for range 3 {
			_, err := p.sign(t.Context(), [32]byte{7})
			if _, again := errors.AsType[transient](err); again || err == nil || !strings.Contains(err.Error(), "not tried again") {
				t.Errorf("%v; want an error that is not tried again", err)
			}
		}
		if f.logins.Load() != 2 {
			t.Errorf("%d logins, want the first and one that is refused", f.logins.Load())
		}
	})

	t.Run("the last try of a PIN is left to a person", func(t *testing.T) {
		p, f, _ := open(t)
		for flag, want := range map[uint]string{pkcs11.CKF_USER_PIN_FINAL_TRY: "by hand", pkcs11.CKF_USER_PIN_LOCKED: "security officer"} {
			f.info = flag
			if _, err := openToken(p.uri, f); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
		}
		if f.logins.Load() != 1 {
			t.Errorf("%d logins, want the first alone", f.logins.Load())
		}
	})

	t.Run("another key under the name", func(t *testing.T) {
		p, f, _ := open(t)
		p.public = &newP256(t).PublicKey
		f.sign = func() error { f.sign = nil; return pkcs11.Error(pkcs11.CKR_TOKEN_NOT_PRESENT) }
		_, _ = p.sign(t.Context(), [32]byte{7})
		if _, err := p.sign(t.Context(), [32]byte{7}); err == nil || !strings.Contains(err.Error(), "another key") {
			t.Errorf("%v", err)
		}
	})

	t.Run("no session is free", func(t *testing.T) {
		p, _, _ := open(t)
		var held []pkcs11.SessionHandle
		for range maxSessions {
			held = append(held, <-p.link.idle)
		}
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error)
		go func() {
			_, err := p.sign(ctx, [32]byte{7})
			answered <- err
		}()
		cancel()
		if err := <-answered; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		for _, session := range held {
			p.link.idle <- session
		}
		works(t, p)
	})
}

// late is a token that answers no login until it is let.
type late struct {
	*library
	entered, let, released chan struct{}
}

func (l *late) Login(session pkcs11.SessionHandle, user uint, pin string) error {
	close(l.entered)
	<-l.let
	return l.library.Login(session, user, pin)
}

func (l *late) release() error {
	defer close(l.released)
	return l.library.release()
}

// A token that hangs holds the start no longer than its caller waits, and gives
// back what it opens when nobody waits any more.
func TestPKCS11HangsAtStart(t *testing.T) {
	s := newSoftToken(t)
	s.generate(t, "deployment", 1, kept()...)
	module, err := loadModule(softHSM)
	if err != nil {
		t.Fatal(err)
	}
	l := &late{library: module, entered: make(chan struct{}), let: make(chan struct{}), released: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := openWithin(ctx, pkcs11URI{token: "fairpact", object: "deployment", pinFile: s.dir + "/pin"}, func() (cryptoki, error) { return l, nil })
		answered <- err
	}()
	<-l.entered
	cancel()
	select {
	case err := <-answered:
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `"fairpact"`) || strings.Contains(err.Error(), rightPIN) {
			t.Errorf("%v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the start waits for the token")
	}
	close(l.let)
	select {
	case <-l.released:
	case <-time.After(20 * time.Second):
		t.Error("what opened too late is not given back")
	}
}

func TestPKCS11PublicKeys(t *testing.T) {
	key := newP256(t)
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	wrapped := append([]byte{4, 65}, point...)
	for _, good := range [][]byte{point, wrapped} {
		if got, err := parseECObject(paramsP256, good); err != nil || !got.Equal(&key.PublicKey) {
			t.Errorf("%d bytes: %v", len(good), err)
		}
	}
	off := bytes.Clone(wrapped)
	off[66] ^= 1
	for name, bad := range map[string][]byte{
		"nothing": nil, "cut short": wrapped[:66], "a byte more": append(bytes.Clone(wrapped), 0), "compressed": append([]byte{2}, point[1:33]...),
		"not on the curve": off, "another tag": append([]byte{3, 65}, point...), "infinity": {4, 1, 0},
	} {
		if _, err := parseECObject(paramsP256, bad); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := parseECObject([]byte{5, 0}, wrapped); err == nil {
		t.Error("no curve named: taken")
	}
}

// A token's key that is not the published one stops the start, and the message
// names both; so does a token that is not there.
func TestPKCS11StartSays(t *testing.T) {
	s := newSoftToken(t)
	s.generate(t, "deployment", 1, kept()...)
	labels, _ := newLabels(t, 1)
	uri := s.uri("object=deployment")
	signer := mustOpenToken(t, uri)
	says(t, Settings{SigningKey: uri, PublicKey: labels[0]}, time.Minute, signer.Custody(), signer.PublicKey(), labels[0], "rotate with fairpactctl keys")
	says(t, Settings{SigningKey: strings.Replace(uri, "token=fairpact", "token=away", 1)}, time.Minute, `no token "away"`, `shows ["fairpact"]`, "connect the token")
}

// A token that goes away and comes back is used again, with no restart: every
// signer of it, also one that was idle meanwhile.
func TestPKCS11TokenComesBack(t *testing.T) {
	s := newSoftToken(t)
	s.generate(t, "one", 1, kept()...)
	s.generate(t, "two", 2, kept()...)
	first, second := mustOpenToken(t, s.uri("object=one")), mustOpenToken(t, s.uri("object=two"))
	away := s.dir + "/away"
	if err := os.Rename(s.dir+"/tokens", away); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.dir+"/tokens", 0o700); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for range 20 {
		if _, err := first.Sign(t.Context(), trial); err != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Fatal("the token signs although it is away: the test shows nothing")
	}
	if err := errors.Join(os.Remove(s.dir+"/tokens"), os.Rename(away, s.dir+"/tokens")); err != nil {
		t.Fatal(err)
	}
	for _, signer := range []*Signer{first, second} {
		var err error
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if _, err = signer.Sign(t.Context(), trial); err == nil {
				break
			}
		}
		if err != nil {
			t.Errorf("the token is back and does not sign: %v", err)
		}
	}
}
